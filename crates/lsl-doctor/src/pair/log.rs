//! Datagrams of doctors, and what was heard of them.

use std::collections::{BTreeMap, VecDeque};

use super::COPIES;
use crate::code::hash8;
use crate::observe::{Class, OtherSide, Share};

/// Returns the nonce of a run. It begins as all of this machine do: a code is good for later runs.
pub fn nonce(host: &str, random: &str) -> String {
    let random: String = random.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{:02x}{random}", hash8(host))
}

/// Returns by which eight bits a code names the machine of a nonce.
pub fn tag(nonce: &str) -> u8 {
    let begin = nonce.get(..2);
    let number = begin.and_then(|it| u8::from_str_radix(it, 16).ok());
    number.unwrap_or_else(|| hash8(nonce))
}

/// A datagram of a doctor: nobody answers it, and liblsl ignores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Of the run that sent it.
    pub nonce: String,
    /// What its path leads to.
    pub class: Class,
    /// The number of its path in that run.
    pub path: usize,
    /// The number of the copy.
    pub copy: usize,
}

impl Probe {
    /// Returns the bytes to send.
    pub fn to_bytes(&self) -> Vec<u8> {
        let class = Class::ALL.iter().position(|it| *it == self.class);
        let class = class.unwrap_or_default();
        let Self {
            nonce, path, copy, ..
        } = self;
        format!("{COMMAND}{nonce} {class}.{path} {copy}\r\n").into_bytes()
    }

    /// Reads a datagram; `None` if it is none of a doctor's.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let text = datagram.strip_prefix(COMMAND.as_bytes())?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix("\r\n")?;
        let mut words = text.split(' ');
        let (nonce, path, copy) = (words.next()?, words.next()?, words.next()?);
        let (class, path) = path.split_once('.')?;
        let copy: usize = copy.parse().ok()?;
        let path: usize = path.parse().ok()?;
        let is_plain =
            nonce.len() <= MAX_NONCE_BYTES && nonce.bytes().all(|it| it.is_ascii_graphic());
        let is_right = is_plain && words.next().is_none() && copy < COPIES && path < MOST_PATHS;
        is_right.then_some(Self {
            nonce: nonce.to_owned(),
            class: *Class::ALL.get(class.parse::<usize>().ok()?)?,
            path,
            copy,
        })
    }
}

/// What was heard of the last few runs.
#[derive(Debug, Default)]
pub struct Heard {
    pub(super) runs: VecDeque<Run>,
    /// Of the machine that is talked with: it stays, whatever others send.
    pinned: Option<String>,
}

/// The copies that were heard of each path, as bits.
#[derive(Debug)]
pub(super) struct Run {
    nonce: String,
    paths: BTreeMap<(Class, usize), u16>,
}

impl Heard {
    /// Keeps what is heard of the machine that is talked with, until there is another or none.
    pub fn pin(&mut self, nonce: Option<&str>) {
        self.pinned = nonce.map(str::to_owned);
    }

    /// Notes a datagram.
    pub fn note(&mut self, probe: &Probe) {
        let known = self.runs.iter().position(|it| it.nonce == probe.nonce);
        let run = known.and_then(|at| self.runs.remove(at));
        let mut run = run.unwrap_or_else(|| Run {
            nonce: probe.nonce.clone(),
            paths: BTreeMap::new(),
        });
        let bit = 1_u16.checked_shl(u32::try_from(probe.copy).unwrap_or(u32::MAX));
        *run.paths.entry((probe.class, probe.path)).or_default() |= bit.unwrap_or_default();
        self.runs.push_back(run);
        if self.runs.len() > MOST_RUNS {
            let is_pinned = |it: &Run| Some(&it.nonce) == self.pinned.as_ref();
            let oldest = self.runs.iter().position(|it| !is_pinned(it));
            oldest.and_then(|at| self.runs.remove(at));
        }
    }

    /// Returns how many copies were heard of each of the first `paths` paths of a run.
    pub fn counts(&self, nonce: &str, paths: usize) -> Vec<usize> {
        let mut counts = vec![0; paths];
        let run = self.runs.iter().find(|it| it.nonce == nonce);
        for ((_, path), copies) in run.into_iter().flat_map(|it| &it.paths) {
            if let Some(count) = counts.get_mut(*path) {
                *count += copies.count_ones() as usize;
            }
        }
        counts
    }

    /// Fills in what the other side is told: of its own run while it is talked with, else of the one heard last.
    pub fn tell(&self, side: &mut OtherSide) {
        let last = self.runs.back().map(|it| &it.nonce);
        if let Some(nonce) = self.pinned.as_ref().or(last) {
            self.tell_of(nonce, side);
        }
    }

    /// Fills in what was heard of a run.
    pub fn tell_of(&self, nonce: &str, side: &mut OtherSide) {
        let Some(run) = self.runs.iter().find(|it| it.nonce == nonce) else {
            return;
        };
        side.tag = tag(nonce);
        for ((class, _), copies) in &run.paths {
            let share = Share::of(copies.count_ones() as usize, COPIES);
            let best = side.heard.entry(*class).or_default();
            *best = share.max(*best);
        }
    }
}

const COMMAND: &str = "LSL:doctor/1\r\n";
const MAX_NONCE_BYTES: usize = 64;
const MOST_PATHS: usize = 128;
const MOST_RUNS: usize = 8;
