//! `nb`: the command line.

use std::path::Path;
use std::process::ExitCode;

use nb::remote::kernels::UserServers;

fn main() -> ExitCode {
    let next = nb::stale::next_cell::next_cell;
    nb::program::run(&UserServers, nb::remote::run, next, || {
        // Where no `nb-proxy` lies beside this program, `nb serve` installs a copy of this one under that name.
        let mut args = std::env::args_os();
        let program = args.next();
        if program
            .as_deref()
            .and_then(|path| Path::new(path).file_stem())
            == Some("nb-proxy".as_ref())
        {
            return nb::proxy::main(args);
        }
        // What the kernelspec of a chat starts, which is no command for people.
        let mut args = args.peekable();
        if args.next_if(|word| word == nb::chat::WORD).is_some() {
            return nb::chat::main(args);
        }
        nb::cli::main()
    })
}
