//! The variables `JUPYTER_GATEWAY_…`, by which Jupyter Server knows a gateway: `nb` takes them the same way.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Map;

use super::address::parse_address;
use super::error::ServerErrorKind;
use super::headers::{CredentialHeaders, basic};
use super::record::{CredentialSource, SecretPlace, ServerKind, ServerRecord};
use super::secret::Secret;
use crate::kernel::environment::trust;
use crate::kernel::variables::{ProcessVariables, Variables};

/// The name of the server that the variables describe.
pub const NAME: &str = "gateway";

fn text(variables: &dyn Variables, name: &str) -> Option<String> {
    let value = variables.get(&format!("JUPYTER_GATEWAY_{name}"))?;
    value.into_string().ok()
}

/// Returns the server that the variables describe.
///
/// # Errors
/// A variable cannot be parsed.
pub(super) fn server_of_variables(
    variables: &dyn Variables,
) -> Result<Option<ServerRecord>, ServerErrorKind> {
    let Some(url) = text(variables, "URL") else {
        return Ok(None);
    };
    let address = parse_address(&url)?;
    Ok(Some(ServerRecord {
        name: NAME.to_owned(),
        url: address.base.into(),
        kind: ServerKind::Gateway,
        credential: CredentialSource::Variables,
        headers: Vec::new(),
        secrets: SecretPlace::Nowhere,
        ca_file: text(variables, "CA_CERTS").map(PathBuf::from),
        max_kernels: None,
        other: Map::new(),
    }))
}

/// Returns the headers that the variables give to each request.
///
/// # Errors
/// A variable cannot be parsed.
pub(super) fn headers_of_variables(
    variables: &dyn Variables,
) -> Result<CredentialHeaders, ServerErrorKind> {
    let mut headers = CredentialHeaders::default();
    if let Some(json) = text(variables, "HEADERS") {
        let custom: Result<BTreeMap<String, String>, _> = serde_json::from_str(&json);
        let message = "JUPYTER_GATEWAY_HEADERS is not a JSON object of texts";
        let custom = custom.map_err(|_| ServerErrorKind::Credential(message.to_owned()))?;
        for (key, value) in &custom {
            headers.add(key, value)?;
        }
    }
    if let (Some(user), Some(password)) =
        (text(variables, "HTTP_USER"), text(variables, "HTTP_PWD"))
    {
        headers.add("Authorization", basic(&user, &password).expose())?;
    }
    let of_url = text(variables, "URL").and_then(|url| parse_address(&url).ok()?.token);
    let token = text(variables, "AUTH_TOKEN").map(Secret::new).or(of_url);
    if let Some(token) = token {
        let key = text(variables, "AUTH_HEADER_KEY").unwrap_or("Authorization".to_owned());
        let scheme = text(variables, "AUTH_SCHEME").unwrap_or("token".to_owned());
        let value = Secret::new(format!("{scheme} {}", token.expose()));
        headers.add(&key, value.expose().trim())?;
    }
    Ok(headers)
}

/// Returns whether the server's certificate is checked: the variables may forbid that.
pub(super) fn checks_certificates(variables: &dyn Variables) -> bool {
    let value = text(variables, "VALIDATE_CERT").unwrap_or_default();
    !matches!(&*value.to_lowercase(), "no" | "false")
}

/// Returns the files of the certificate and the key by which this side shows who it is.
pub(super) fn client_certificate(variables: &dyn Variables) -> Option<(PathBuf, PathBuf)> {
    let certificate = text(variables, "CLIENT_CERT")?;
    let key = text(variables, "CLIENT_KEY").unwrap_or_else(|| certificate.clone());
    Some((certificate.into(), key.into()))
}

/// Returns the variables that a gateway gets with the request for a kernel: those that begin with `KERNEL_` or
/// are named in `JUPYTER_GATEWAY_ALLOWED_ENVS`. A gateway may refuse who is without a `KERNEL_USERNAME`: where no variable
/// has the user's name, `system_user` is asked for it.
pub fn kernel_variables(
    all: impl IntoIterator<Item = (String, String)>,
    system_user: impl FnOnce() -> Option<String>,
) -> BTreeMap<String, String> {
    let all: BTreeMap<String, String> = all.into_iter().collect();
    let get = |name: &str| all.get(name).filter(|value| !value.is_empty()).cloned();
    let allowed = get("JUPYTER_GATEWAY_ALLOWED_ENVS").or(get("JUPYTER_GATEWAY_ENV_WHITELIST"));
    let allowed = allowed.unwrap_or_default();
    let user = get("JUPYTER_GATEWAY_HTTP_USER")
        .or(get("USER"))
        .or(get("LOGNAME"));
    let is_allowed =
        |name: &str| name.starts_with("KERNEL_") || allowed.split(',').any(|it| it.trim() == name);
    let mut kernel_env = all.clone();
    kernel_env.retain(|name, _| is_allowed(name));
    if !kernel_env.contains_key("KERNEL_USERNAME")
        && let Some(user) = user.or_else(system_user)
    {
        kernel_env.insert("KERNEL_USERNAME".to_owned(), user);
    }
    kernel_env
}

/// Returns the name that the system knows for the user of this process.
pub fn system_user() -> Option<String> {
    let id = trust::on_path("id", &ProcessVariables)?;
    let output = Command::new(id).arg("-un").output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?;
    Some(name.trim().to_owned()).filter(|name| output.status.success() && !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_variables_give_a_server_and_its_headers() {
        assert_eq!(server_of_variables(&HashMap::new()).unwrap(), None);
        let variables = HashMap::from([
            ("JUPYTER_GATEWAY_URL", "https://g.org/x?token=inside"),
            ("JUPYTER_GATEWAY_CA_CERTS", "/ca.pem"),
            ("JUPYTER_GATEWAY_HEADERS", r#"{"X-A": "1"}"#),
            ("JUPYTER_GATEWAY_AUTH_TOKEN", "sesame"),
            ("JUPYTER_GATEWAY_AUTH_SCHEME", "Bearer"),
            ("JUPYTER_GATEWAY_VALIDATE_CERT", "No"),
        ]);
        let record = server_of_variables(&variables).unwrap().unwrap();
        assert_eq!(record.url, "https://g.org/x/");
        assert_eq!(record.ca_file.as_deref(), Some("/ca.pem".as_ref()));
        let headers = headers_of_variables(&variables).unwrap();
        assert_eq!(headers.get("x-a"), Some("1"));
        assert_eq!(headers.get("authorization"), Some("Bearer sesame"));
        assert!(!format!("{record:?} {headers:?}").contains("sesame"));
        assert!(!checks_certificates(&variables));
    }

    #[test]
    fn a_gateway_gets_the_kernels_variables_and_the_users_name() {
        let variables = [
            ("KERNEL_GPU", "1"),
            ("USER", "ann"),
            ("SECRET", "x"),
            ("LANG", "C"),
            ("JUPYTER_GATEWAY_ALLOWED_ENVS", "LANG, TZ"),
        ];
        let custom = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let kernel_env = kernel_variables(custom.clone(), || None);
        let names: Vec<_> = kernel_env.keys().map(String::as_str).collect();
        assert_eq!(names, ["KERNEL_GPU", "KERNEL_USERNAME", "LANG"]);
        let user_name = [("KERNEL_USERNAME".to_owned(), "bob".to_owned())];
        let kernel_env = kernel_variables(custom.into_iter().chain(user_name), || None);
        assert_eq!(kernel_env["KERNEL_USERNAME"], "bob");
    }

    #[test]
    fn a_gateway_gets_the_name_that_the_system_knows_where_no_variable_has_it() {
        let kernel_env = kernel_variables([], system_user);
        let name = &kernel_env["KERNEL_USERNAME"];
        assert!(!name.is_empty() && !name.contains(char::is_whitespace));
    }
}
