//! Where the project's files and its build output lie.

use std::path::{Path, PathBuf};

/// The project's directories, found once at start.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Finds the project from the place that cargo started this program for.
    pub(crate) fn find() -> Result<Self, String> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .ok_or("cannot find the project: start this with `cargo xtask`")?
            .to_path_buf();
        // Cargo takes a relative target directory from where it was started, which is unknown
        // here, so such a setting is read as relative to the project.
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self { root, target })
    }

    /// The interpreter of the virtual environment that holds Google's packages.
    pub(crate) fn python(&self) -> PathBuf {
        python_of(&self.venv())
    }

    /// The virtual environment that holds Google's packages.
    pub(crate) fn venv(&self) -> PathBuf {
        self.target.join("venv")
    }

    /// The interpreter of the virtual environment with Google's newest client.
    pub(crate) fn newest_client_python(&self) -> PathBuf {
        python_of(&self.newest_client_venv())
    }

    /// The virtual environment with Google's newest client, which Google's agent kit does not take yet.
    pub(crate) fn newest_client_venv(&self) -> PathBuf {
        self.target.join("venv-newest-client")
    }

    /// The virtual environment of the oldest version of Google's agent kit that is supported.
    pub(crate) fn oldest_adk_venv(&self) -> PathBuf {
        self.target.join("venv-adk-oldest")
    }

    /// The virtual environment of the newest version of Google's agent kit before 2.
    pub(crate) fn newest_1_adk_venv(&self) -> PathBuf {
        self.target.join("venv-adk-newest-1")
    }

    /// The virtual environment with the official MCP package.
    pub(crate) fn mcp_venv(&self) -> PathBuf {
        self.target.join("venv-mcp")
    }

    /// The virtual environment with pipx.
    pub(crate) fn pipx_venv(&self) -> PathBuf {
        self.target.join("venv-pipx")
    }

    /// The virtual environment with what judges the description of the API.
    pub(crate) fn openapi_venv(&self) -> PathBuf {
        self.target.join("venv-openapi")
    }

    /// The virtual environment with linters.
    pub(crate) fn linters_venv(&self) -> PathBuf {
        self.target.join("venv-linters")
    }

    /// The interpreter of the virtual environment with linters.
    pub(crate) fn linters_python(&self) -> PathBuf {
        python_of(&self.linters_venv())
    }

    /// The virtual environment with an S3 server.
    pub(crate) fn s3_venv(&self) -> PathBuf {
        self.target.join("venv-s3")
    }

    /// What the test runner of the named step reports.
    pub(crate) fn report(&self, step: &str) -> PathBuf {
        self.target.join("xtask").join(format!("{step}.xml"))
    }

    /// The output of the named step.
    pub(crate) fn log(&self, step: &str) -> PathBuf {
        self.target.join("xtask").join(format!("{step}.log"))
    }
}

/// The interpreter of a virtual environment.
pub(crate) fn python_of(venv: &Path) -> PathBuf {
    if cfg!(windows) {
        venv.join("Scripts").join("python.exe")
    } else {
        venv.join("bin").join("python")
    }
}
