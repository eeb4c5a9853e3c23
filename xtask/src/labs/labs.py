"""Proofs that `lsl doctor` names one cause and its cure: `labs.py FOLDER [LAB]`, run by `cargo xtask labs` in a
network of its own. Spec: doctor Part C; labs have its numbers."""

import sys

import broken
import changing
import healing
import healthy
import hosts
import pair
import rescued
import streams
from network import Network
from lab import play

SETS = (broken, changing, healing, healthy, hosts, pair, rescued, streams)
LABS = {name: lab for each in SETS for name, lab in each.LABS.items()}

# They mostly wait.
AT_ONCE = 4


if __name__ == "__main__":
    play(LABS, Network, *sys.argv[1:], at_once=AT_ONCE)
