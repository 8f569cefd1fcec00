//! Every test that needs more than one module: the protocol against libzmq, and flows through real parts.

#![allow(unreachable_pub, reason = "a test binary has no outside")]

mod assistant;
mod browser;
mod build_script;
mod chat;
mod client;
mod demo;
mod dependencies;
mod docs;
mod events;
mod faults;
mod format;
mod frontends;
mod graph;
mod home;
mod layers;
mod libzmq;
mod made;
mod model;
mod nb;
mod node;
mod notebooks;
mod ports;
mod prints;
mod python;
mod random_notebooks;
mod run;
mod scope;
mod seeing;
mod servers;
mod skipped;
mod socket_events;
mod sockets;
mod stranger;
mod upgrade;
mod vscode;
mod vscode_extension;
mod web;
mod web_jupyter;
mod witness;
mod workbench;
mod world;
mod writers;
mod zmq_rs;
