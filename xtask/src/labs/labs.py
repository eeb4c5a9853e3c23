"""Proofs that `lsl doctor` names one cause and its cure: `labs.py FOLDER [LAB]`, run by `cargo xtask labs` in a
network of its own. Spec: doctor Part C; labs have its numbers."""

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import broken
import healthy
from network import Network, expect, now
from lab import Tools

LABS = {**broken.LABS, **healthy.LABS}

# They mostly wait.
AT_ONCE = 4


def main(folder, part=""):
    tools = Tools()
    chosen = [name for name in LABS if part in name]
    expect(chosen, f"no lab is called {part}")

    def play(name):
        began = now()
        try:
            with Network(tools, folder, name) as network:
                try:
                    numbers = LABS[name](network) or ""
                finally:
                    said = (f"{program}\n\n" for program in network.running)
                    network.folder.with_suffix(".log").write_text("".join(said))
        except Exception:
            why = f"{traceback.format_exc()}What programs said: {network.folder.with_suffix('.log')}"
            print(f"{name} ... FAILED after {now() - began:.1f} s\n{why}", flush=True)
            return False
        print(f"{name} ... ok ({numbers}{now() - began:.1f} s)", flush=True)
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        passed = list(pool.map(play, chosen))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(not all(passed))


if __name__ == "__main__":
    main(*sys.argv[1:])
