//! Kernels as processes: specs, environments, launch, identity, signals.
