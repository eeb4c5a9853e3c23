"""Proofs that `lsl relay` joins networks: `relay.py FOLDER [SCENE]`, run by `cargo xtask relay` in a
network of its own. Spec: relay §14, tests 1 to 4, 6, 10 and 11."""

import sys

import cut
import joined
import past
from stage import Stage
from lab import play

SCENES = {
    "laptop": joined.laptop,
    "link": joined.link,
    "between": joined.between,
    "kills": cut.kills,
    "sources": cut.sources,
    "triangle": lambda stage: cut.ring(stage, 3),
    "ring": lambda stage: cut.ring(stage, 4),
    "spare": cut.spare,
    "kept": past.kept,
    "full": past.full,
}

# They mostly wait.
AT_ONCE = 3


if __name__ == "__main__":
    play(SCENES, Stage, *sys.argv[1:], at_once=AT_ONCE)
