//! The VS Code extension as a VSIX file: a zip of the extension's files and two files that describe it.
//!
//! The files are part of this program, so that it can install the extension without anything else.

use std::io::{self, Write as _};

use serde_json::Value;

/// The extension's id, by which editors list it.
pub const ID: &str = "nb.nb-shared-kernel";

/// The files of the extension except `package.json`, with the names that they have in it.
const FILES: [(&str, &[u8]); 11] = [
    ("LICENSE.txt", include_bytes!("../../../../LICENSE")),
    (
        "logo-64x64.png",
        include_bytes!("../../../../kernelspec/logo-64x64.png"),
    ),
    ("activity.js", include_bytes!("../vscode/activity.js")),
    ("cells.js", include_bytes!("../vscode/cells.js")),
    ("editor.js", include_bytes!("../vscode/editor.js")),
    ("extension.js", include_bytes!("../vscode/extension.js")),
    ("live.js", include_bytes!("../vscode/live.js")),
    ("nb.js", include_bytes!("../vscode/nb.js")),
    ("outputs.js", include_bytes!("../vscode/outputs.js")),
    ("process.js", include_bytes!("../vscode/process.js")),
    ("words.js", include_bytes!("../vscode/words.js")),
];

const PACKAGE: &str = include_str!("../vscode/package.json");

/// Says by its ending what each file is; a VSIX must have it.
const CONTENT_TYPES: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension=".json" ContentType="application/json"/>
  <Default Extension=".js" ContentType="application/javascript"/>
  <Default Extension=".png" ContentType="image/png"/>
  <Default Extension=".txt" ContentType="text/plain"/>
  <Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
"#;

/// Returns the extension's version, which is this program's.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Returns the bytes of the VSIX file. They depend on nothing but this program.
///
/// # Errors
/// The zip cannot be written, which does not happen in memory.
pub fn pack() -> io::Result<Vec<u8>> {
    let package = package()?;
    let manifest = manifest(&package);
    let mut package = serde_json::to_vec_pretty(&package)?;
    package.push(b'\n');
    let described: [(&str, &[u8]); 2] = [
        ("[Content_Types].xml", CONTENT_TYPES.as_bytes()),
        ("extension.vsixmanifest", manifest.as_bytes()),
    ];
    let mut archive = rawzip::ZipArchiveWriter::new(Vec::new());
    for (name, bytes) in described {
        add(&mut archive, name, bytes)?;
    }
    add(&mut archive, "extension/package.json", &package)?;
    for (name, bytes) in FILES {
        add(&mut archive, &format!("extension/{name}"), bytes)?;
    }
    archive.finish().map_err(io::Error::other)
}

/// Adds a file. It is stored as it is: all of them together are small.
fn add(
    archive: &mut rawzip::ZipArchiveWriter<Vec<u8>>,
    name: &str,
    bytes: &[u8],
) -> io::Result<()> {
    let entry = archive
        .new_file(name)
        .compression_method(rawzip::CompressionMethod::STORE);
    let (mut entry, config) = entry.start().map_err(io::Error::other)?;
    let mut writer = config.wrap(&mut entry);
    writer.write_all(bytes)?;
    let (_, descriptor) = writer.finish().map_err(io::Error::other)?;
    entry.finish(descriptor).map_err(io::Error::other)?;
    Ok(())
}

/// Returns `package.json` with this program's version.
fn package() -> io::Result<Value> {
    let mut package: Value = serde_json::from_str(PACKAGE)?;
    package["version"] = version().into();
    Ok(package)
}

/// Returns the file by which editors know the extension before they unpack it.
fn manifest(package: &Value) -> String {
    let text = |value: &Value| escaped(value.as_str().unwrap_or_default());
    let kind = package["extensionKind"].as_array().into_iter().flatten();
    let kind: Vec<_> = kind.map(text).collect();
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id="{name}" Version="{version}" Publisher="{publisher}"/>
    <DisplayName>{display_name}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Categories>Notebooks</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value="{engine}"/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionDependencies" Value=""/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionPack" Value=""/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value="{kind}"/>
    </Properties>
    <License>extension/LICENSE.txt</License>
    <Icon>extension/logo-64x64.png</Icon>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.License" Path="extension/LICENSE.txt" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Icons.Default" Path="extension/logo-64x64.png" Addressable="true"/>
  </Assets>
</PackageManifest>
"#,
        name = text(&package["name"]),
        version = version(),
        publisher = text(&package["publisher"]),
        display_name = text(&package["displayName"]),
        description = text(&package["description"]),
        engine = text(&package["engines"]["vscode"]),
        kind = kind.join(","),
    )
}

/// Returns a text as XML writes it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns the files of a zip, after a check of their sums.
    fn unpacked(zip: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let archive = rawzip::ZipArchive::from_slice(zip).unwrap();
        let mut entries = archive.entries();
        let mut files = BTreeMap::new();
        while let Some(entry) = entries.next_entry().unwrap() {
            let name = entry.file_path().try_normalize().unwrap();
            let name = name.as_ref().to_owned();
            let stored = archive.get_entry(entry.wayfinder()).unwrap();
            let mut bytes = Vec::new();
            let mut reader = stored.verifying_reader(stored.data());
            io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
            assert!(files.insert(name, bytes).is_none());
        }
        files
    }

    #[test]
    fn the_package_has_each_file_and_both_descriptions() {
        let files = unpacked(&pack().unwrap());
        let package: Value = serde_json::from_slice(&files["extension/package.json"]).unwrap();
        assert_eq!(package["version"], version());
        let id = [&package["publisher"], &package["name"]].map(|it| it.as_str().unwrap());
        assert_eq!(id.join("."), ID);
        let manifest = std::str::from_utf8(&files["extension.vsixmanifest"]).unwrap();
        assert!(manifest.contains(&format!("Version=\"{}\"", version())));
        let engine = package["engines"]["vscode"].as_str().unwrap();
        assert!(manifest.contains(&format!("Value=\"{engine}\"")));
        // The type of each file is declared, else the editor does not unpack it.
        let types = std::str::from_utf8(&files["[Content_Types].xml"]).unwrap();
        for name in files.keys().filter(|name| *name != "[Content_Types].xml") {
            let ending = name.rsplit_once('.').unwrap().1;
            assert!(
                types.contains(&format!("Extension=\".{ending}\"")),
                "{name}"
            );
        }
        // No source is forgotten.
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/vscode");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(files.contains_key(&format!("extension/{name}")), "{name}");
        }
        assert_eq!(pack().unwrap(), pack().unwrap());
    }

    #[test]
    fn signs_of_xml_are_escaped() {
        assert_eq!(escaped(r#"a<b> & "c""#), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
