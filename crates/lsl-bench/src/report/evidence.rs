//! `lsl bench evidence`: pages with every table that others published beside ours, made from stored results; and the
//! runs of which these are. `docs/results/published.json` says which cell of theirs is held against which of ours.
//! Spec: audit §6.

mod cell;
mod measure;
mod page;
mod published;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::notice::note;

use crate::result::Results;
use published::{Page, Published};

#[derive(Debug, Args)]
pub(crate) struct Evidence {
    /// Measure these parts, as in cage/atrest, or all of a page, and then write the pages
    #[arg(long, value_name = "PAGE[/PART]", num_args = 0..)]
    run: Option<Vec<String>>,

    /// Change nothing, and fail if a page is not that of its data, or claims what is not met
    #[arg(long, conflicts_with = "run")]
    check: bool,

    /// Measure though the machine is busy; the pages say so
    #[arg(long, requires = "run")]
    anyway: bool,

    /// The folder of the book
    #[arg(long, value_name = "DIR", default_value = "docs")]
    docs: PathBuf,
}

/// The data of all pages: what others published, and our results by page and part.
struct Data {
    published: Published,
    results: BTreeMap<(String, String), Results>,
}

impl Evidence {
    pub(crate) fn run(&self) -> Outcome {
        if let Some(wanted) = &self.run {
            let published = Data::read(&self.docs)?.published;
            measure::run(&published, wanted, &self.docs, self.anyway)?;
        }
        let data = Data::read(&self.docs)?;
        let mut problems = data.problems();
        for wanted in &data.published.pages {
            let path = self.docs.join(format!("evidence/{}.md", wanted.name));
            let before = fs::read_to_string(&path)
                .map_err(|error| Failure::from(error).context(&path.display().to_string()))?;
            let made = data.made(wanted, &before);
            problems.extend(made.problems);
            let differs = made.text != before;
            if differs && self.check {
                problems.push(format!("{} is not that of its data", path.display()));
            } else if differs {
                fs::write(&path, made.text)?;
                note(format_args!("lsl: wrote {}", path.display()));
            }
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Failure::Runtime(problems.join("\n")))
    }
}

impl Data {
    fn read(docs: &Path) -> Outcome<Self> {
        let file = docs.join("results/published.json");
        let attempt = || -> Outcome<Published> { Ok(serde_json::from_slice(&fs::read(&file)?)?) };
        let published = attempt().map_err(|it| it.context(&file.display().to_string()))?;
        let mut results = BTreeMap::new();
        for page in &published.pages {
            for part in &page.parts {
                let file = stored(docs, page, &part.name);
                if file.exists() {
                    let found = super::load::read(&file)?;
                    results.insert((page.name.clone(), part.name.clone()), found);
                }
            }
        }
        Ok(Self { published, results })
    }

    fn of(&self, page: &Page, part: &str) -> Option<&Results> {
        self.results.get(&(page.name.clone(), part.to_owned()))
    }

    fn made(&self, page: &Page, before: &str) -> page::Made {
        page::make(page, &|part| self.of(page, part), before)
    }

    /// What is wrong with the data themselves.
    fn problems(&self) -> Vec<String> {
        let is_slim = |((page, part), results): (&(String, String), &Results)| {
            let size = serde_json::to_string_pretty(results).map_or(0, |text| text.len());
            let is_slim = size <= MOST_BYTES && measure::is_slim(results);
            (!is_slim).then(|| format!("{page}/{part}: keeps more than the pages need"))
        };
        self.results.iter().filter_map(is_slim).collect()
    }
}

/// Where a part's result is kept.
fn stored(docs: &Path, page: &Page, part: &str) -> PathBuf {
    docs.join(format!("results/{}/{part}.json", page.name))
}

/// The largest result that is kept.
const MOST_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn docs() -> Data {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        Data::read(Path::new(docs)).unwrap()
    }

    fn text(page: &Page) -> String {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        fs::read_to_string(format!("{docs}/evidence/{}.md", page.name)).unwrap()
    }

    /// After another run: `cargo xtask evidence`. Spec: audit §7, test 12.
    #[test]
    fn the_pages_of_the_book_are_those_of_their_data() {
        let data = docs();
        assert_eq!(data.problems(), [""; 0]);
        for page in &data.published.pages {
            let before = text(page);
            let made = data.made(page, &before);
            assert_eq!(made.problems, [""; 0]);
            assert!(made.text == before, "evidence/{}.md", page.name);
        }
    }

    #[test]
    fn a_digit_that_changed_and_a_table_that_is_gone_are_found() {
        let data = docs();
        for page in &data.published.pages {
            let good = text(page);
            for table in &page.tables {
                let (before, rest) = good.split_once(&page::begin(&table.name)).unwrap();
                let (section, after) = rest.split_once(&page::end(&table.name)).unwrap();
                if let Some(digit) = section.find(|c: char| c.is_ascii_digit()) {
                    let other = if &section[digit..=digit] == "7" {
                        "8"
                    } else {
                        "7"
                    };
                    let mut changed = good.clone();
                    let digit = good.len() - rest.len() + digit;
                    changed.replace_range(digit..=digit, other);
                    assert!(data.made(page, &changed).text != changed, "{}", table.name);
                }
                let removed = format!("{before}{after}");
                assert!(!data.made(page, &removed).problems.is_empty());
            }
            let foreign = format!("{good}\n{}\n", page::begin("none of theirs"));
            assert!(!data.made(page, &foreign).problems.is_empty());
        }
    }
}
