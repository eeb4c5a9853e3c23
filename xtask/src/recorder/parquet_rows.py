"""Prints a Parquet file as JSON, numbers as Python writes them: `parquet_rows.py FILE`."""

import json
import sys

import pyarrow.parquet

table = pyarrow.parquet.read_table(sys.argv[1])
columns = [column.to_pylist() for column in table.columns]
json.dump({"names": table.column_names, "rows": list(zip(*columns))}, sys.stdout)
