//! What is set up on a machine: kernelspecs through which front ends find kernels, the extensions for VS Code and JupyterLab, agents'
//! files, and the checks of `nb doctor`.

pub mod agent_setup;
pub mod doctor;
pub mod install;
pub mod jupyterlab_extension;
pub mod planned_file;
pub mod program;
pub mod serve;
pub mod serve_chat;
pub mod vscode_extension;
pub mod vscode_package;
pub mod vscode_settings;
