//! `lsl bench evidence`: pages with every table that others published beside ours, made from stored results; and the
//! runs of which these are. `docs/results/published.json` says which cell of theirs is held against which of ours.
//! Spec: audit §6.

mod cell;
mod figure;
mod measure;
mod page;
mod published;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lsl_cli::failure::{Failure, Outcome};
use lsl_cli::ui::notice::note;
use lsl_cli::ui::text::printable;

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

    /// Keep what is measured under the name of this machine, beside what is there
    #[arg(long, requires = "run", value_name = "NAME", value_parser = machine_name)]
    machine: Option<String>,

    /// Print the pages with the results of another folder beside ours: docs/results of another clone, or what `lsl
    /// bench` wrote with the words of a part
    #[arg(long, conflicts_with_all = ["run", "check"], value_name = "DIR")]
    with: Option<PathBuf>,

    /// The folder of the book
    #[arg(long, value_name = "DIR", default_value = "docs")]
    docs: PathBuf,
}

/// The data of all pages: what others published, and our results.
struct Data {
    published: Published,
    stored: Stored,
}

/// Results by page, part and machine; those of the project's own machine have no name.
#[derive(Default)]
struct Stored(BTreeMap<[String; 3], Results>);

impl Evidence {
    pub(crate) fn run(&self) -> Outcome {
        if let Some(wanted) = &self.run {
            let published = Data::read(&self.docs)?.published;
            let machine = self.machine.as_deref().unwrap_or_default();
            measure::run(&published, wanted, &self.docs, machine, self.anyway)?;
        }
        let mut data = Data::read(&self.docs)?;
        if let Some(folder) = &self.with {
            return data.print_with(folder, &self.docs);
        }
        let mut problems = data.problems();
        for page in &data.published.pages {
            let (path, before) = text_of(page, &self.docs)?;
            let made = page::make(page, &data.stored, &before);
            problems.extend(made.problems);
            let pictures = made.pictures.into_iter();
            let pictures = pictures.map(|(name, svg)| {
                let path = self.docs.join("images").join(name);
                let before = fs::read_to_string(&path).unwrap_or_default();
                (path, before, svg)
            });
            for (path, before, made) in std::iter::once((path, before, made.text)).chain(pictures) {
                if made == before {
                    continue;
                }
                if self.check {
                    problems.push(format!("{} is not that of its data", path.display()));
                } else {
                    fs::write(&path, made)?;
                    note(format_args!("lsl: wrote {}", path.display()));
                }
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
        let stored = Stored::read(&docs.join("results"), &published)?;
        Ok(Self { published, stored })
    }

    /// Adds results that somebody else made, and prints the pages that they are of.
    fn print_with(&mut self, folder: &Path, docs: &Path) -> Outcome {
        let mut theirs = Stored::read(folder, &self.published)?;
        theirs.find_runs(folder, &self.published)?;
        let pages = self.published.pages.iter();
        let pages: Vec<&Page> = pages.filter(|it| theirs.is_of(it)).collect();
        if pages.is_empty() {
            let folder = folder.display();
            let text =
                format!("{folder} has no PAGE/PART.json, and no result with the words of a part");
            return Err(Failure::NotFound(text));
        }
        self.stored.add(theirs);
        for page in pages {
            let (_, before) = text_of(page, docs)?;
            let made = page::make(page, &self.stored, &before);
            let mut out = io::stdout().lock();
            for line in made.text.lines() {
                // Their names may steer a terminal.
                writeln!(out, "{}", printable(line))?;
            }
        }
        Ok(())
    }

    /// What is wrong with the data themselves.
    fn problems(&self) -> Vec<String> {
        let is_slim = |(key, results): (&[String; 3], &Results)| {
            let size = serde_json::to_string_pretty(results).map_or(0, |text| text.len());
            let is_slim = size <= MOST_BYTES && measure::is_slim(results);
            (!is_slim).then(|| format!("{}: keeps more than the pages need", key.join("/")))
        };
        self.stored.0.iter().filter_map(is_slim).collect()
    }
}

impl Stored {
    /// Reads PAGE/PART.json and PAGE/PART.MACHINE.json of a folder.
    fn read(folder: &Path, published: &Published) -> Outcome<Self> {
        let mut stored = Self::default();
        for page in &published.pages {
            let folder = folder.join(&page.name);
            if !folder.exists() {
                continue;
            }
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let Some(name) = name.strip_suffix(".json") else {
                    continue;
                };
                let (part, machine) = name.split_once('.').unwrap_or((name, ""));
                if page.parts.iter().any(|it| it.name == part) {
                    let key = [page.name.as_str(), part, machine].map(str::to_owned);
                    stored.0.insert(key, super::load::read(&path)?);
                }
            }
        }
        Ok(stored)
    }

    /// Adds what `lsl bench` left below a folder, if its words were those of a part.
    fn find_runs(&mut self, folder: &Path, published: &Published) -> Outcome {
        let files = match super::load::find(&[folder.to_owned()]) {
            Err(Failure::NotFound(_)) => Vec::new(),
            found => found?,
        };
        let runs = files.iter().map(|file| super::load::read(file));
        let mut runs: Vec<Results> = runs.collect::<Outcome<_>>()?;
        runs.iter_mut().for_each(measure::slim);
        for (page, part) in published.parts() {
            let runs = runs.iter().filter(|it| part.is_of(it)).cloned();
            let (groups, _) = super::load::merge(runs.collect());
            for results in groups.into_iter().map(|group| group.results) {
                let machine = results.machine.cpu.clone();
                self.insert(&page.name, &part.name, &machine, results);
            }
        }
        Ok(())
    }

    /// Adds those of somebody else, under the name of the processor if their machine has none.
    fn add(&mut self, theirs: Self) {
        let text = |results: &Results| serde_json::to_string(results).ok();
        for ([page, part, machine], results) in theirs.0 {
            let own = self.0.get(&[page.clone(), part.clone(), machine.clone()]);
            // A clone has ours too.
            if own.is_some_and(|own| text(own) == text(&results)) {
                continue;
            }
            let name = match machine.as_str() {
                "" => results.machine.cpu.clone(),
                _ if own.is_some() => format!("{machine} of theirs"),
                _ => machine,
            };
            self.insert(&page, &part, &name, results);
        }
    }

    /// Adds results under a name, with a number behind it if others have it.
    fn insert(&mut self, page: &str, part: &str, machine: &str, results: Results) {
        let numbered = (2..).map(|number| format!("{machine} ({number})"));
        let mut names = std::iter::once(machine.to_owned()).chain(numbered);
        let free = names.find_map(|name| {
            let key = [page.to_owned(), part.to_owned(), name];
            (!self.0.contains_key(&key)).then_some(key)
        });
        if let Some(key) = free {
            self.0.insert(key, results);
        }
    }

    fn of(&self, page: &Page, part: &str, machine: &str) -> Option<&Results> {
        let key = [page.name.as_str(), part, machine].map(str::to_owned);
        self.0.get(&key)
    }

    fn is_of(&self, page: &Page) -> bool {
        self.0.keys().any(|[of, ..]| *of == page.name)
    }

    /// Names the machines of a page, the project's own first.
    fn machines(&self, page: &Page) -> Vec<&str> {
        let of_page = self.0.keys().filter(|[of, ..]| *of == page.name);
        let names = of_page.map(|[_, _, machine]| machine.as_str());
        let names: BTreeSet<&str> = names.chain([""]).collect();
        names.into_iter().collect()
    }
}

/// Where a page lies, and what it says.
fn text_of(page: &Page, docs: &Path) -> Outcome<(PathBuf, String)> {
    let path = docs.join(format!("evidence/{}.md", page.name));
    let text = fs::read_to_string(&path)
        .map_err(|error| Failure::from(error).context(&path.display().to_string()))?;
    Ok((path, text))
}

/// Where the result of a part is kept.
fn file_of(docs: &Path, page: &Page, part: &str, machine: &str) -> PathBuf {
    let dot = if machine.is_empty() { "" } else { "." };
    docs.join(format!("results/{}/{part}{dot}{machine}.json", page.name))
}

fn machine_name(text: &str) -> Result<String, String> {
    if super::format::file_name(text) == text {
        return Ok(text.into());
    }
    Err("write small letters, digits and dashes".into())
}

/// The largest result that is kept.
const MOST_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

    fn docs() -> Data {
        Data::read(Path::new(DOCS)).unwrap()
    }

    fn text(page: &Page) -> String {
        text_of(page, Path::new(DOCS)).unwrap().1
    }

    /// After another run: `cargo xtask evidence`. Spec: audit §7, test 12.
    #[test]
    fn the_pages_of_the_book_are_those_of_their_data() {
        let data = docs();
        assert_eq!(data.problems(), [""; 0]);
        for page in &data.published.pages {
            let before = text(page);
            let made = page::make(page, &data.stored, &before);
            assert_eq!(made.problems, [""; 0]);
            assert!(made.text == before, "evidence/{}.md", page.name);
            for (name, svg) in made.pictures {
                let before = fs::read_to_string(format!("{DOCS}/images/{name}"));
                assert!(before.is_ok_and(|before| before == svg), "{name}");
            }
        }
    }

    #[test]
    fn a_digit_that_changed_and_a_table_that_is_gone_are_found() {
        let data = docs();
        let make = |page: &Page, text: &str| page::make(page, &data.stored, text);
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
                    assert!(make(page, &changed).text != changed, "{}", table.name);
                }
                let removed = format!("{before}{after}");
                assert!(!make(page, &removed).problems.is_empty());
            }
            let foreign = format!("{good}\n{}\n", page::begin("none of theirs"));
            assert!(!make(page, &foreign).problems.is_empty());
        }
    }

    #[test]
    fn a_run_with_the_words_of_a_part_is_one_of_it() {
        let folder = crate::scratch::Folder::make(&std::env::temp_dir(), "with").unwrap();
        let mut results = crate::report::tests::made_up();
        let words = ["lsl-bench", "aead", "--seconds", "3", "--output", "x"];
        for (name, words) in [("a", &words[..]), ("b", &words[..2])] {
            results.args = words.iter().map(|word| (*word).to_owned()).collect();
            results.write(&folder.path("").join(name)).unwrap();
        }
        let published = docs().published;
        let mut found = Stored::default();
        found.find_runs(&folder.path(""), &published).unwrap();
        let key = ["discord-video-stream", "aead", &results.machine.cpu].map(str::to_owned);
        assert_eq!(found.0.keys().collect::<Vec<_>>(), [&key]);
        let none = folder.path("none");
        fs::create_dir(&none).unwrap();
        found.find_runs(&none, &published).unwrap();
    }

    #[test]
    fn results_of_others_are_added_and_ours_are_not_repeated() {
        let key = |machine: &str| ["secure-lsl", "cable", machine].map(str::to_owned);
        let ours = crate::report::tests::made_up();
        let mut theirs = ours.clone();
        theirs.machine.cpu = "other".into();
        let mut stored = Stored(
            [("", &ours), ("pi5", &ours)]
                .map(|(it, results)| (key(it), results.clone()))
                .into(),
        );
        let all = [("", &ours), ("pi5", &theirs), ("pi4", &theirs)];
        stored.add(Stored(
            all.map(|(it, results)| (key(it), results.clone())).into(),
        ));
        let published = docs().published;
        let names = ["", "pi4", "pi5", "pi5 of theirs"];
        assert_eq!(stored.machines(&published.pages[0]), names);
        stored.add(Stored([(key(""), theirs)].into()));
        assert_eq!(stored.machines(&published.pages[0])[1], "other");
        assert!(!stored.is_of(&published.pages[1]));
        for (name, is_good) in [("pi5", true), ("../x", false), ("a.b", false), ("", false)] {
            assert_eq!(machine_name(name).is_ok(), is_good, "{name}");
        }
    }
}
