"""Proofs that `lsl relay` joins networks: `relay.py FOLDER [SCENE]`, run by `cargo xtask relay` in a
network of its own. Spec: relay §14, tests 1 to 4, 6, 10 and 11."""

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import cut
import joined
import past
from stage import Stage, expect, now
from lab import Tools

SCENES = {
    "laptop": joined.laptop,
    "link": joined.link,
    "between": joined.between,
    "kills": cut.kills,
    "triangle": lambda stage: cut.ring(stage, 3),
    "ring": lambda stage: cut.ring(stage, 4),
    "spare": cut.spare,
    "kept": past.kept,
    "full": past.full,
}

# They mostly wait.
AT_ONCE = 3


def main(folder, part=""):
    tools = Tools()
    chosen = [name for name in SCENES if part in name]
    expect(chosen, f"no scene is called {part}")

    def play(name):
        began = now()
        try:
            with Stage(tools, folder, name) as stage:
                try:
                    numbers = SCENES[name](stage)
                finally:
                    said = (f"{program}\n\n" for program in stage.running)
                    stage.folder.with_suffix(".log").write_text("".join(said))
        except Exception:
            why = f"{traceback.format_exc()}What programs said: {stage.folder.with_suffix('.log')}"
            print(f"{name} ... FAILED after {now() - began:.1f} s\n{why}", flush=True)
            return False
        print(f"{name} ... ok ({numbers}; {now() - began:.1f} s)", flush=True)
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        passed = list(pool.map(play, chosen))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(not all(passed))


if __name__ == "__main__":
    main(*sys.argv[1:])
