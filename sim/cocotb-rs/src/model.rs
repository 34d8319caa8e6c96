//! Builds a model from Verilog text at run time, or takes it from the cache.

use crate::{
    cache::{self, Key},
    error::BuildError,
    ffi::Object,
    port::{Direction, PortDecl, PortMap},
    shim,
    tool::{self, Toolchain},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

/// How hard the C++ compiler works on the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Optimization {
    /// `-O3`: for models that run long.
    #[default]
    Speed,
    /// `-O1`: for large models that run briefly; compiles about three times faster.
    BuildTime,
}

/// Describes a model: the Verilog, its top module and the variant wanted.
#[derive(Clone, Debug)]
pub struct ModelBuilder {
    top: String,
    sources: Vec<String>,
    ports: Option<Vec<PortDecl>>,
    parameters: Vec<(String, String)>,
    verilator_arguments: Vec<String>,
    with_trace: bool,
    with_coverage: bool,
    optimization: Optimization,
    cache: Option<PathBuf>,
    verilator: Option<PathBuf>,
    compiler: Option<PathBuf>,
}

impl ModelBuilder {
    /// A model whose top module is `top`.
    pub fn new(top: impl Into<String>) -> Self {
        ModelBuilder {
            top: top.into(),
            sources: Vec::new(),
            ports: None,
            parameters: Vec::new(),
            verilator_arguments: Vec::new(),
            with_trace: false,
            with_coverage: false,
            optimization: Optimization::Speed,
            cache: None,
            verilator: None,
            compiler: None,
        }
    }

    /// Adds Verilog or SystemVerilog text. May be called several times; the texts are compiled in that order.
    pub fn verilog(mut self, text: impl Into<String>) -> Self {
        self.sources.push(text.into());
        self
    }

    /// Names the ports the module is expected to have; building fails if it has others. Without it, the ports are
    /// simply those that Verilator finds.
    pub fn ports(mut self, ports: impl IntoIterator<Item = PortDecl>) -> Self {
        self.ports = Some(ports.into_iter().collect());
        self
    }

    /// Sets a parameter of the top module, as Verilog text (`"8"`, `"32'h5"`).
    pub fn parameter(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.parameters.push((name.into(), value.to_string()));
        self
    }

    /// Adds an argument for Verilator, for example `-Wall` or `-Werror-WIDTH`.
    pub fn verilator_argument(mut self, argument: impl Into<String>) -> Self {
        self.verilator_arguments.push(argument.into());
        self
    }

    /// Compiles in the ability to write FST traces. It costs a third of the speed even while no trace is written.
    pub fn trace(mut self, on: bool) -> Self {
        self.with_trace = on;
        self
    }

    /// Compiles in line, toggle and user coverage.
    pub fn coverage(mut self, on: bool) -> Self {
        self.with_coverage = on;
        self
    }

    /// Chooses between speed of the model and speed of its build.
    pub fn optimization(mut self, optimization: Optimization) -> Self {
        self.optimization = optimization;
        self
    }

    /// Uses this cache folder instead of the one in Cargo's target folder.
    pub fn cache_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Uses this `verilator_bin`.
    pub fn verilator(mut self, program: impl Into<PathBuf>) -> Self {
        self.verilator = Some(program.into());
        self
    }

    /// Uses this C++ compiler.
    pub fn compiler(mut self, program: impl Into<PathBuf>) -> Self {
        self.compiler = Some(program.into());
        self
    }

    /// Builds the model, or loads it from the cache if the same one was built before.
    ///
    /// # Errors
    /// A tool is missing, the Verilog or the generated C++ does not compile, the ports are not those named, or the
    /// cache cannot be written.
    pub fn build(self) -> Result<Model, BuildError> {
        if self.sources.is_empty() {
            return Err(BuildError::NoVerilog { top: self.top });
        }
        let tools = tool::toolchain(self.verilator.as_deref(), self.compiler.as_deref())?;
        let folder = self.cache.clone().unwrap_or_else(cache::folder);
        let folder = std::path::absolute(&folder).map_err(BuildError::io("resolve", &folder))?;
        let place = folder.join(format!("{}-{}", file_name(&self.top), self.key(&tools)));
        let was_built = cache::ensure(&place, |work| self.compile(&tools, &folder, work))?;
        Model::load(self, place, was_built)
    }

    /// The name of everything that decides the content of a build.
    fn key(&self, tools: &Toolchain) -> String {
        let mut key = Key::new("cocotb-rs model");
        key.add(shim::SHIM_VERSION);
        for tool in [&tools.verilator_version, &tools.compiler_version] {
            key.add(tool);
        }
        key.add(tools.root.as_os_str().as_encoded_bytes());
        key.add(&self.top);
        key.add(format!("{:?} {} {}", self.optimization, self.with_trace, self.with_coverage));
        key.add(format!("{:?}", self.ports));
        key.add(format!("{:?} {:?}", self.parameters, self.verilator_arguments));
        self.sources.iter().for_each(|text| key.add(text));
        key.finish()
    }

    fn compile(&self, tools: &Toolchain, folder: &Path, work: &Path) -> Result<PathBuf, BuildError> {
        let entry = work.join("entry");
        let cpp = work.join("cpp");
        for dir in [&entry, &cpp] {
            fs::create_dir(dir).map_err(BuildError::io("create", dir))?;
        }
        let log = self.verilate(tools, &entry, &cpp)?;
        write(&entry.join("verilator.log"), &log)?;

        let header_path = cpp.join("Vdut.h");
        let header = fs::read_to_string(&header_path).map_err(BuildError::io("read", &header_path))?;
        let found = shim::ports_of_header(&self.top, &header)?;
        self.check_ports(&found)?;
        write(&entry.join("ports.txt"), &ports_to_text(&found))?;
        write(&cpp.join("cocotb_rs_print.h"), shim::PRINT_HEADER)?;
        write(&cpp.join("cocotb_rs_shim.cpp"), &shim::source(&PortMap::new(found), &header))?;
        let units = unity_sources(&cpp)?;
        let optimize = if self.optimization == Optimization::Speed { "-O3" } else { "-O1" };
        let compile = |index: usize, unit: &Unit| -> Result<PathBuf, BuildError> {
            let (source, object) = (cpp.join(format!("unit{index}.cc")), cpp.join(format!("unit{index}.o")));
            write(&source, &unit.text)?;
            let mut command = self.compiler_command(tools, &cpp);
            command.arg(if unit.is_fast { optimize } else { "-O0" }).arg("-c").arg(source).arg("-o").arg(&object);
            tool::run("the C++ compiler", &mut command)?;
            Ok(object)
        };
        let objects: Vec<_> = std::thread::scope(|scope| {
            let compile = &compile;
            let runtime = scope.spawn(|| self.runtime(tools, folder));
            let started = units.iter().enumerate().map(|(index, unit)| scope.spawn(move || compile(index, unit)));
            let started: Vec<_> = started.chain([runtime]).collect();
            started.into_iter().map(|thread| thread.join().expect("a compiling thread does not panic")).collect()
        });
        let mut link = Command::new(&tools.compiler);
        link.args(["-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", "-o"]).arg(entry.join("model.so"));
        for object in objects {
            link.arg(object?);
        }
        link.args(["-pthread", "-latomic"]);
        if self.with_trace {
            link.arg("-lz");
            if !tools.include().join("gtkwave/lz4.c").is_file() {
                link.arg("-llz4");
            }
        }
        tool::run("the C++ compiler", &mut link)?;
        Ok(entry)
    }

    fn verilate(&self, tools: &Toolchain, entry: &Path, cpp: &Path) -> Result<String, BuildError> {
        let mut command = Command::new(&tools.verilator);
        command.env("VERILATOR_ROOT", &tools.root).current_dir(entry);
        command.args(["--cc", "--top-module", &self.top, "--prefix", "Vdut", "--Mdir"]).arg(cpp);
        command.args(["-O3", "--x-assign", "unique", "--x-initial", "unique", "--assert", "--no-timing", "-Wno-fatal"]);
        // Above this size of function the compiler's time grows much faster than the function.
        command.args(["--output-split-cfuncs", "200"]);
        if self.with_trace {
            // By default signals wider than 256 bits are left out of a trace.
            command.args(["--trace-fst", "--trace-max-width", "8192"]);
        }
        if self.with_coverage {
            command.arg("--coverage");
        }
        for (name, value) in &self.parameters {
            command.arg(format!("-G{name}={value}"));
        }
        command.args(&self.verilator_arguments);
        for (index, text) in self.sources.iter().enumerate() {
            let name = if index == 0 { format!("{}.v", file_name(&self.top)) } else { format!("source{index}.v") };
            write(&entry.join(&name), text)?;
            command.arg(name);
        }
        tool::run("Verilator", &mut command)
    }

    fn check_ports(&self, found: &[PortDecl]) -> Result<(), BuildError> {
        let Some(wanted) = &self.ports else { return Ok(()) };
        let missing = wanted.iter().find(|port| !found.contains(port));
        let surplus = found.iter().find(|port| !wanted.contains(port));
        let difference = match (missing, surplus) {
            (None, None) => return Ok(()),
            (Some(port), _) => match found.iter().find(|other| other.name == port.name) {
                Some(other) => format!("the list has {port}, the module has {other}"),
                None => format!("the list has {port}, the module has no such port"),
            },
            (None, Some(port)) => format!("the module has {port}, the list has no such port"),
        };
        Err(BuildError::PortMismatch { top: self.top.clone(), difference })
    }

    /// The flags that model and runtime share, so that they agree on the layout of the runtime's classes.
    fn compiler_command(&self, tools: &Toolchain, cpp: &Path) -> Command {
        let include = tools.include();
        let mut command = Command::new(&tools.compiler);
        command.args(["-std=gnu++17", "-fPIC", "-w", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]);
        if !tools.is_clang() {
            // Otherwise inline statics of the runtime would be one per process instead of one per model.
            command.arg("-fno-gnu-unique");
        }
        command.arg("-include").arg(cpp.join("cocotb_rs_print.h"));
        command.arg("-I").arg(&include).arg("-I").arg(include.join("vltstd")).arg("-I").arg(cpp);
        let (trace, coverage) = (u8::from(self.with_trace), u8::from(self.with_coverage));
        command.args(["-DVM_SC=0", "-DVL_USER_STOP", "-DVL_USER_FINISH", "-DVL_USER_FATAL", "-DVM_TRACE_VCD=0"]);
        command.args([format!("-DVM_TRACE={trace}"), format!("-DVM_TRACE_FST={trace}")]);
        command.arg(format!("-DVM_COVERAGE={coverage}"));
        command
    }

    /// The object of the Verilator runtime for this variant, built once per cache.
    fn runtime(&self, tools: &Toolchain, folder: &Path) -> Result<PathBuf, BuildError> {
        let mut key = Key::new("cocotb-rs runtime");
        key.add(shim::SHIM_VERSION);
        key.add(&tools.verilator_version);
        key.add(&tools.compiler_version);
        key.add(tools.root.as_os_str().as_encoded_bytes());
        key.add(format!("{} {}", self.with_trace, self.with_coverage));
        let place = folder.join(format!("runtime-{}.o", key.finish()));
        cache::ensure(&place, |work| {
            let mut parts = vec!["verilated", "verilated_threads"];
            parts.extend(self.with_trace.then_some("verilated_fst_c"));
            parts.extend(self.with_coverage.then_some("verilated_cov"));
            let include = tools.include();
            let files = parts.iter().map(|part| include.join(format!("{part}.cpp"))).filter(|file| file.is_file());
            let text: String = files.map(|file| format!("#include \"{}\"\n", file.display())).collect();
            write(&work.join("runtime.cc"), &text)?;
            write(&work.join("cocotb_rs_print.h"), shim::PRINT_HEADER)?;
            let object = work.join("runtime.o");
            let mut command = self.compiler_command(tools, work);
            command.args(["-O1", "-c"]).arg(work.join("runtime.cc")).arg("-o").arg(&object);
            tool::run("the C++ compiler", &mut command)?;
            Ok(object)
        })?;
        Ok(place)
    }
}

/// A compiled model, shared by any number of simulations on any number of threads.
#[derive(Clone)]
pub struct Model {
    object: Arc<Object>,
    ports: Arc<PortMap>,
    top: Arc<str>,
    log: Arc<str>,
    place: Arc<Path>,
    was_built: bool,
}

impl Model {
    fn load(builder: ModelBuilder, place: PathBuf, was_built: bool) -> Result<Self, BuildError> {
        let ports_path = place.join("ports.txt");
        let text = fs::read_to_string(&ports_path).map_err(BuildError::io("read", &ports_path))?;
        let ports = ports_from_text(&text)
            .ok_or_else(|| BuildError::DamagedCache { path: place.clone(), reason: "ports.txt is malformed".into() })?;
        let ports = PortMap::new(ports);
        let log_path = place.join("verilator.log");
        let log = fs::read_to_string(&log_path).map_err(BuildError::io("read", &log_path))?;
        let object = Object::load(&place.join("model.so"), ports.input_words(), ports.output_words())?;
        Ok(Model {
            object,
            ports: Arc::new(ports),
            top: builder.top.into(),
            log: log.into(),
            place: place.into(),
            was_built,
        })
    }

    /// The ports.
    pub fn ports(&self) -> &PortMap {
        &self.ports
    }

    /// The name of the top module.
    pub fn top(&self) -> &str {
        &self.top
    }

    /// What Verilator said about the design when the model was built: its warnings.
    pub fn verilator_log(&self) -> &str {
        &self.log
    }

    /// Whether this call of [`ModelBuilder::build`] compiled the model, rather than found it in the cache.
    pub fn was_built(&self) -> bool {
        self.was_built
    }

    /// The folder in the cache that holds the model and its Verilog.
    pub fn cache_entry(&self) -> &Path {
        &self.place
    }

    pub(crate) fn object(&self) -> &Arc<Object> {
        &self.object
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("top", &self.top).field("place", &self.place).finish_non_exhaustive()
    }
}

fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    fs::write(path, text).map_err(BuildError::io("write", path))
}

/// A module name may hold anything if escaped; a file name here holds letters, digits and `_`.
fn file_name(top: &str) -> String {
    top.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// A translation unit that includes generated files.
struct Unit {
    text: String,
    /// Whether it holds what runs at every evaluation, rather than at construction only.
    is_fast: bool,
}

/// Generated bytes that are worth a compiler process of their own.
const UNIT_BYTES_MIN: u64 = 400_000;

/// All generated files in few units: one of what runs at construction only, and for what runs at every evaluation one,
/// or in a large model one per processor. The shim goes with the first, so that its calls are inlined.
fn unity_sources(cpp: &Path) -> Result<Vec<Unit>, BuildError> {
    let mut files = Vec::new();
    for file in fs::read_dir(cpp).map_err(BuildError::io("list", cpp))? {
        let file = file.map_err(BuildError::io("list", cpp))?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("Vdut") && name.ends_with(".cpp") {
            files.push((name, file.metadata().map_err(BuildError::io("inspect", file.path()))?.len()));
        }
    }
    files.sort();
    let include = |name: &str| format!("#include \"{name}\"\n");
    let (slow, fast): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|(name, _)| ["Slow", "__Syms", "__ConstPool"].iter().any(|part| name.contains(part)));
    let total_bytes: u64 = fast.iter().map(|(_, bytes)| bytes).sum();
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let count = (total_bytes / UNIT_BYTES_MIN).clamp(1, processors);
    let mut texts = vec![String::new(); count as usize];
    texts[0] = include("cocotb_rs_shim.cpp");
    let mut before_bytes = 0;
    for (name, bytes) in &fast {
        let unit = (before_bytes * count / total_bytes.max(1)) as usize;
        texts[unit] += &include(name);
        before_bytes += bytes;
    }
    let slow = slow.iter().map(|(name, _)| include(name)).collect();
    let fast = texts.into_iter().map(|text| Unit { text, is_fast: true });
    Ok(fast.chain([Unit { text: slow, is_fast: false }]).collect())
}

fn ports_to_text(ports: &[PortDecl]) -> String {
    let line = |port: &PortDecl| {
        let direction = if port.direction == Direction::Input { "input" } else { "output" };
        format!("{direction} {} {}\n", port.width_bits, port.name)
    };
    ports.iter().map(line).collect()
}

fn ports_from_text(text: &str) -> Option<Vec<PortDecl>> {
    let port = |line: &str| {
        let mut fields = line.splitn(3, ' ');
        let make = match fields.next()? {
            "input" => PortDecl::input,
            "output" => PortDecl::output,
            _ => return None,
        };
        let width_bits = fields.next()?.parse().ok().filter(|width| *width > 0)?;
        Some(make(fields.next()?, width_bits))
    };
    text.lines().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_list_survives_the_cache_and_a_damaged_one_is_noticed() {
        let ports = vec![PortDecl::input("clk", 1), PortDecl::output("odd name", 512)];
        assert_eq!(ports_from_text(&ports_to_text(&ports)), Some(ports));
        for damaged in ["input 0 x\n", "inout 3 x\n", "input x\n"] {
            assert_eq!(ports_from_text(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn every_generated_file_is_in_one_unit_and_the_shim_leads_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let fast: Vec<String> = (0..7).map(|index| format!("Vdut_part{index}.cpp")).collect();
        let slow = ["Vdut__Syms.cpp", "Vdut_part0__Slow.cpp"];
        for name in fast.iter().map(String::as_str).chain(slow).chain(["cocotb_rs_shim.cpp", "Vdut.h"]) {
            fs::write(folder.path().join(name), vec![b' '; UNIT_BYTES_MIN as usize]).unwrap();
        }
        let units = unity_sources(folder.path()).unwrap();
        let processors = std::thread::available_parallelism().unwrap().get();
        assert_eq!(units.len(), processors.min(7) + 1);
        assert!(units[0].text.starts_with("#include \"cocotb_rs_shim.cpp\"\n"));
        let text = |is_fast| units.iter().filter(|u| u.is_fast == is_fast).map(|u| u.text.as_str()).collect::<String>();
        let include = |name: &str| format!("#include \"{name}\"\n");
        assert_eq!(text(false), slow.map(include).concat());
        let expected: String = fast.iter().map(|name| include(name)).collect();
        assert_eq!(text(true), include("cocotb_rs_shim.cpp") + &expected);
    }

    #[test]
    fn every_choice_that_changes_the_model_changes_its_key() {
        let tools = Toolchain {
            verilator: "v".into(),
            root: "r".into(),
            verilator_version: "1".into(),
            compiler: "c".into(),
            compiler_version: "2".into(),
        };
        let base = || ModelBuilder::new("t").verilog("module t; endmodule");
        let variants = [
            base(),
            base().verilog("module u; endmodule"),
            base().trace(true),
            base().coverage(true),
            base().parameter("W", 8),
            base().verilator_argument("-Wall"),
            base().optimization(Optimization::BuildTime),
            base().ports([PortDecl::input("clk", 1)]),
        ];
        let keys: std::collections::BTreeSet<_> = variants.iter().map(|variant| variant.key(&tools)).collect();
        assert_eq!(keys.len(), variants.len());
        assert_eq!(base().key(&tools), base().key(&tools));
        let newer = Toolchain { verilator_version: "2".into(), ..tools };
        assert!(!keys.contains(&base().key(&newer)));
    }
}
