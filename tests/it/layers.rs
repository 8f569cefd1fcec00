//! The maps in `src/lib.rs` and in each crate's `lib.rs` are the architecture: a module imports only what its row allows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// Returns the source folders of the root package and of the crates.
fn source_folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = std::fs::read_dir(root.join("crates")).expect("read crates");
    let crates = crates.map(|entry| entry.expect("a folder entry").path().join("src"));
    [root.join("src")].into_iter().chain(crates).collect()
}

/// Returns all source files, each with its module.
fn files() -> Vec<(Vec<String>, PathBuf)> {
    let mut files = Vec::new();
    for src in source_folders() {
        let mut found = Vec::new();
        sources(&src, &mut found);
        let found = found.into_iter();
        files.extend(found.map(|file| (module_of(&src, &file), file)));
    }
    files
}

/// Reads the rows of all maps: a module and what it may import.
fn map() -> BTreeMap<String, Vec<String>> {
    let libs = source_folders()
        .into_iter()
        .map(|src| std::fs::read_to_string(src.join("lib.rs")).expect("read lib.rs"));
    libs.flat_map(|lib| rows(&lib)).collect()
}

/// Reads the rows of one map.
fn rows(lib: &str) -> BTreeMap<String, Vec<String>> {
    lib.lines()
        .filter_map(|line| line.strip_prefix("//! | [`"))
        .map(|row| {
            let (module, rest) = row.split_once("`]").expect("a row names its module");
            let imports = rest
                .trim_end_matches(" |")
                .rsplit('|')
                .next()
                .expect("a row has columns");
            let names = imports
                .split(|c: char| !c.is_ascii_lowercase())
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect();
            (module.to_owned(), names)
        })
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("read a source folder") {
        let path = entry.expect("read a folder entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// Returns the module of a file in `src`: `["route", "turns"]` for `route/turns.rs`.
fn module_of(src: &Path, file: &Path) -> Vec<String> {
    let below = file.strip_prefix(src).expect("it is in src");
    let names = below.with_extension("");
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    if names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// A visitor that finds every path of a file that leads into this crate, in any notation.
struct Imports {
    /// The present module: the file's, or one inside it.
    module: Vec<String>,
    /// The modules that the file declares: a path may begin with their names.
    children: Vec<String>,
    /// Whether test modules are skipped.
    skips_tests: bool,
    /// Whether the present `use` passes names of a child on.
    passes_on: bool,
    /// The names of children that the file passes on as its own, and their paths.
    passed_on: BTreeMap<String, Vec<String>>,
    /// The paths that were found, from the crate's root on.
    found: Vec<Vec<String>>,
}

impl Imports {
    fn of(module: &[String], file: &Path, skips_tests: bool) -> Self {
        let text = std::fs::read_to_string(file).expect("read a source file");
        let file_items = syn::parse_file(&text).expect("parse a source file");
        let mut imports = Self {
            module: module.to_vec(),
            children: children(&file_items),
            skips_tests,
            passes_on: false,
            passed_on: BTreeMap::new(),
            found: Vec::new(),
        };
        imports.visit_file(&file_items);
        imports
    }

    /// Records a path that begins with `crate`, `self`, `super` or a module that the file declares.
    fn take(&mut self, names: &[String]) {
        let mut whole = match names.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.module.clone(),
            Some(name) if self.children.iter().any(|child| child == name) => self.module.clone(),
            _ => return,
        };
        for name in names {
            match &**name {
                "crate" | "self" => {}
                "super" => drop(whole.pop()),
                name => whole.push(name.to_owned()),
            }
        }
        if self.passes_on && whole.starts_with(&self.module) {
            let name = names.last().expect("a path has names").clone();
            self.passed_on.insert(name, whole);
        } else {
            self.found.push(whole);
        }
    }

    fn take_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.take_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.take(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.take(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.take(before),
            syn::UseTree::Group(group) => {
                group
                    .items
                    .iter()
                    .for_each(|tree| self.take_tree(before, tree));
            }
        }
    }
}

/// Returns the names of the modules of a file that are files themselves.
fn children(file: &syn::File) -> Vec<String> {
    let modules = file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
        _ => None,
    });
    modules.collect()
}

fn has_test(condition: &str) -> bool {
    condition
        .split(|c: char| !c.is_ascii_lowercase())
        .any(|word| word == "test")
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = |attribute: &syn::Attribute| match &attribute.meta {
            syn::Meta::List(cfg) => cfg.path.is_ident("cfg") && has_test(&cfg.tokens.to_string()),
            _ => false,
        };
        if self.skips_tests && item.attrs.iter().any(is_test) {
            return;
        }
        self.module.push(item.ident.to_string());
        syn::visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.passes_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.take_tree(&[], &item.tree);
        self.passes_on = false;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.take(&names.collect::<Vec<_>>());
        syn::visit::visit_path(self, path);
    }

    /// `pub(super)` imports nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        // The tokens of a macro call are not parsed.
        let text = item.tokens.to_string().replace(' ', "");
        for used in text.split("crate::").skip(1) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
            let used: String = used.chars().take_while(|c| is_name(*c)).collect();
            let names = used.split("::").filter(|name| !name.is_empty());
            self.found.push(names.map(str::to_owned).collect());
        }
        syn::visit::visit_macro(self, item);
    }
}

#[test]
fn modules_import_only_what_the_map_allows() {
    let map = map();
    let mut faults = Vec::new();
    for (names, file) in files() {
        let Some((module, allowed)) = names.first().and_then(|name| map.get_key_value(name)) else {
            continue;
        };
        for path in Imports::of(&names, &file, false).found {
            let Some(name) = path.first() else { continue };
            if map.contains_key(name) && name != module && !allowed.contains(name) {
                let file = file.display();
                faults.push(format!("{file}: {module} imports {}", path.join("::")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_import_is_found_however_it_is_written() {
    let text = "
        use crate::{client::{self, Execute as Run}, zmtp::*};
        use super::super::kernel;
        mod inside { use super::super::other; }
        mod part;
        use part::Name;
        pub use part::Passed;
        fn f(it: &crate::socket::Left) { debug!(\"{}\", crate::cli::main()); }
    ";
    let file = syn::parse_file(text).expect("parse");
    let mut imports = Imports {
        module: ["ops", "editing"].map(str::to_owned).to_vec(),
        children: children(&file),
        skips_tests: false,
        passes_on: false,
        passed_on: BTreeMap::new(),
        found: Vec::new(),
    };
    imports.visit_file(&file);
    let found = imports.found.iter().map(|names| names.join("::"));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            "client",
            "client::Execute",
            "zmtp",
            "kernel",
            "ops::other",
            "ops::editing::part::Name",
            "socket::Left",
            "cli::main",
        ]
    );
}

#[test]
fn no_files_import_in_a_circle() {
    type Name = Vec<String>;
    // The crates' own `lib.rs` have no name.
    let files = files()
        .into_iter()
        .filter(|(module, _)| *module != ["lib".to_owned()]);
    let modules: BTreeMap<Name, PathBuf> = files.collect();
    let imports = modules
        .iter()
        .filter(|(module, _)| !module.iter().any(|name| name == "tests"))
        .map(|(module, file)| (module, Imports::of(module, file, true)));
    let imports: BTreeMap<&Name, Imports> = imports.collect();
    // The file that has a name is another one than the file that passes it on.
    let file_of = |path: &Name| {
        let mut path = path.clone();
        loop {
            let mut beginnings = (1..=path.len()).rev().map(|length| &path[..length]);
            let (name, _) = beginnings.find_map(|name| modules.get_key_value(name))?;
            let rest = path.get(name.len());
            let passed_on = rest.and_then(|rest| imports.get(name)?.passed_on.get(rest));
            match passed_on {
                Some(to) if to.len() > name.len() => path = to.clone(),
                _ => return Some(name),
            }
        }
    };
    let imports: BTreeMap<&Name, BTreeSet<&Name>> = imports
        .iter()
        .map(|(module, imports)| {
            let files = imports.found.iter().filter_map(file_of);
            // A file may use the modules above it, which declare it.
            (
                *module,
                files.filter(|name| !module.starts_with(name)).collect(),
            )
        })
        .collect();
    let reached = |from: &Name| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Name> = imports[from].iter().copied().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<&Name, _> = imports.keys().map(|name| (*name, reached(name))).collect();
    let circles: BTreeSet<Vec<String>> = reached
        .iter()
        .map(|(module, ends)| {
            let back = |end: &&&Name| reached.get(**end).is_some_and(|it| it.contains(*module));
            ends.iter().filter(back).map(|end| end.join("::")).collect()
        })
        .filter(|circle: &Vec<String>| circle.len() > 1)
        .collect();
    let shown: Vec<_> = circles.iter().map(|circle| circle.join(" ")).collect();
    assert!(shown.is_empty(), "{}", shown.join("\n"));
}

/// The names of the types of a file that other modules or other crates can use.
struct PublicTypes(Vec<String>);

impl PublicTypes {
    fn take(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        let is_public = match visibility {
            syn::Visibility::Public(_) => true,
            syn::Visibility::Restricted(to) => to.path.is_ident("crate"),
            syn::Visibility::Inherited => false,
        };
        if is_public {
            self.0.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for PublicTypes {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.take(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.take(&item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.take(&item.vis, &item.ident);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.take(&item.vis, &item.ident);
    }
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (module, file) in files() {
        // A command's arguments have the name of the command.
        if module.starts_with(&["cli".to_owned(), "commands".to_owned()]) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("read a source file");
        let mut types = PublicTypes(Vec::new());
        types.visit_file(&syn::parse_file(&text).expect("parse a source file"));
        for name in types.0 {
            modules.entry(name).or_default().push(module.join("::"));
        }
    }
    modules.retain(|_, modules| modules.len() > 1);
    assert!(modules.is_empty(), "{modules:#?}");
}

#[test]
fn every_module_stands_on_the_map() {
    for src in source_folders() {
        let lib = std::fs::read_to_string(src.join("lib.rs")).expect("read lib.rs");
        let declared: Vec<_> = lib
            .lines()
            .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
            .collect();
        let rows = rows(&lib);
        let rows: Vec<_> = rows.keys().map(String::as_str).collect();
        assert_eq!(declared, rows, "{}", src.display());
    }
}

#[test]
fn no_crate_has_more_lines_than_its_budget() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("scripts/lines-of-code");
    let output = std::process::Command::new("python3").arg(script).output();
    let counts = String::from_utf8(output.expect("count the lines").stdout).expect("text");
    let number = |text: &str| text.trim().replace(',', "").parse::<usize>().ok();
    let page = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("read the page");
    let budgets = page.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let budget = number(rest.trim_end_matches(" |").rsplit("| ").next()?)?;
        let name = name
            .strip_prefix("crates/")
            .or((name == "src").then_some(name))?;
        Some((name, budget))
    });
    let budgets: BTreeMap<_, _> = budgets.collect();
    assert_eq!(budgets.len(), source_folders().len(), "{budgets:?}");
    for (name, budget) in budgets {
        let count = counts.lines().find_map(|line| {
            let (count, found) = line.trim().split_once("  ")?;
            (found == name).then(|| number(count)).flatten()
        });
        let count = count.unwrap_or_else(|| panic!("{name}: {counts}"));
        assert!(
            count <= budget,
            "{name} has {count} lines, its budget is {budget}"
        );
    }
}

#[test]
fn no_test_file_is_forgotten() {
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it"))
        .expect("read tests/it")
    {
        let name = entry
            .expect("read a folder entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || main.contains(&format!("mod {module};")),
            "tests/it/main.rs does not name {name}"
        );
    }
}

/// The files that open, make, rename or remove files in a project's folder, and what they may call there
/// without [`nb::project::beneath`], since these calls touch other files.
const ELSEWHERE: [(&str, &[&str]); 17] = [
    // Opening itself; folders of the user's state folder.
    ("project/beneath.rs", &["std::fs::"]),
    ("project/confined.rs", &["std::fs::"]),
    ("project/identity.rs", &["std::fs::"]),
    ("project/registry.rs", &["std::fs::"]),
    ("project/sandbox_folders.rs", &["std::fs::"]),
    ("project/scratch.rs", &["std::fs::"]),
    ("project/token.rs", &["std::fs::", "tempfile"]),
    ("project/user_file.rs", &["std::fs::"]),
    ("project/written.rs", &["std::fs::"]),
    // On Linux it uses its own descriptors.
    (
        "project/remove.rs",
        &["symlink_metadata", "remove_dir_all", "remove_file"],
    ),
    ("project/save.rs", &["tempfile"]),
    // A connection file may be anywhere.
    ("project/stranger.rs", &["std::fs::"]),
    ("project/folder.rs", &["std::fs::DirBuilder"]),
    ("project/event/journal.rs", &["std::fs::Metadata"]),
    ("project/state_folder.rs", &["std::fs::DirBuilder"]),
    ("project/host.rs", &["/proc/"]),
    ("project/lock.rs", &["std::fs::metadata(path)", "/proc/"]),
];

#[test]
fn files_of_the_project_are_opened_in_one_place() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/project/src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut faults = Vec::new();
    for file in files {
        let name = file
            .strip_prefix(&src)
            .expect("it is in src")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&file).expect("read a source file");
        // Modules of tests are the last of a file.
        let ends = |(one, next): (&str, &str)| {
            one.starts_with("#[cfg(") && one.contains("test") && next.ends_with('{')
        };
        let pairs = text.lines().zip(text.lines().skip(1));
        let code = text
            .lines()
            .take(pairs.take_while(|pair| !ends(*pair)).count());
        let allowed = ELSEWHERE.iter().find(|(path, _)| *path == name);
        let allowed = allowed.map_or(&[][..], |(_, words)| words);
        for (number, line) in code.enumerate() {
            let code = line.trim_start();
            let opens = ["std::fs::", "File::open", "OpenOptions", "tempfile"];
            let is_code = !code.starts_with("//") && !code.starts_with("use ");
            if is_code
                && opens.iter().any(|word| code.contains(word))
                && !allowed.iter().any(|word| code.contains(word))
            {
                faults.push(format!("{name}:{}: {code}", number + 1));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "use project::beneath:\n{}",
        faults.join("\n")
    );
}
