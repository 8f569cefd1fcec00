//! One live Jupyter kernel and one notebook, for people and AI agents at once.
//!
//! Below all modules are three crates, each with a map of its own: [`nb_wire`] (`wire`, `zmtp`, `route`, `socket`),
//! [`nb_notebook`] (`notebook`) and [`nb_python`] (`code`, `graph`).
//!
//! The map, lowest first. A module imports only from those its row names; `tests/it/layers.rs`
//! keeps that true.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`project`] | `.nb/`: its root, `state.json`, locks, the journal of typed events, versions of cells, jobs, who is joined, the user's settings | wire, notebook |
//! | [`kernel`] | kernelspecs (`spec`), environments (`environment`), processes and their supervisor (`process`), sandbox and container (`confine`) | wire, project |
//! | [`server`] | Jupyter servers elsewhere: records, secrets, the REST client, the websocket of a kernel, categories of failure | wire, project, kernel |
//! | [`client`] | a kernel's client over the `zeromq` crate; one execute request as a pure state machine | wire |
//! | [`activity`] | who acts, who else is there, what they did since somebody last looked | notebook, project, kernel |
//! | [`task`] | processes of our own that outlive whoever started them | project, kernel |
//! | [`editing`] | a notebook read, edited, undone, restored | wire, notebook, project, kernel, activity, task |
//! | [`lifecycle`] | a kernel opened, shared, served, restarted, ended; which notebook a command means | wire, notebook, project, kernel, server, client, activity, task, editing |
//! | [`execution`] | cells and code run, recorded, followed, replayed | wire, notebook, project, kernel, client, activity, task, editing, lifecycle |
//! | [`stale`] | which cells of a notebook are out of date: the graph of its code, and what its kernel has run | notebook, graph, project, editing, execution |
//! | [`api`] | the use cases, one function a command | wire, notebook, graph, project, kernel, client, activity, task, editing, lifecycle, execution, stale, server |
//! | [`demo`] | what `nb demo` plays | wire, notebook, project, kernel, client, lifecycle |
//! | [`proxy`] | the I/O shell round `route` | wire, route, socket, kernel, project, activity, task, editing, lifecycle, execution |
//! | [`remote`] | the bridge: presents a kernel on a server as one of this machine | wire, socket, kernel, project, server, task |
//! | [`agent`] | conversations with coding agents: the client's side of the Agent Client Protocol | notebook, kernel, server, project, activity, api |
//! | [`assistant`] | a model that works in notebooks: its provider's interface, and the tools of `nb mcp` | code, notebook, kernel, server, project, agent |
//! | [`text`] | answers and problems as plain text | api, editing, execution, lifecycle, and types of activity, kernel, notebook, project |
//! | [`http`] | what servers over HTTP have in common: addresses, secrets, limits | socket, api |
//! | [`mcp`] | the commands as tools for agents, over the Model Context Protocol | code, api, text, http, activity, editing, and types of kernel, notebook, project |
//! | [`web`] | a page of the notebooks, with REST, a websocket and an assistant; the same kernels for Jupyter's clients by URL | wire, socket, kernel, project, server, agent, assistant, api, http, and types of notebook |
//! | [`chat`] | a kernel whose cells are messages to agents | wire, socket, kernel, project, lifecycle, agent, api, and functions of notebook |
//! | [`cli`] | the `nb` command line: arguments, commands, printing | agent, api, text, mcp, web, activity, task, editing, lifecycle, execution, demo, and types of wire, notebook, kernel, project, server |
//! | [`program`] | what both programs do before their own `main` | project, kernel, task, editing, lifecycle, execution, remote |
//!
//! `src/vscode` is no module: it holds the extension for VS Code, in JavaScript, which `lifecycle` packs and installs.
//!
//! Adapters (`proxy`, `remote`, `mcp`, `web`, `chat`, `cli`) never import each other, except that `nb mcp` and `nb web` start their servers.

pub mod activity;
pub mod agent;
pub mod api;
pub mod assistant;
pub mod chat;
pub mod cli;
pub mod client;
pub mod demo;
pub mod editing;
pub mod execution;
pub mod http;
pub mod kernel;
pub mod lifecycle;
pub mod mcp;
pub mod program;
pub mod project;
pub mod proxy;
pub mod remote;
pub mod server;
pub mod stale;
pub mod task;
pub mod text;
pub mod web;

pub use nb_notebook::notebook;
pub use nb_python::{code, graph};
pub use nb_wire::{route, socket, wire, zmtp};
