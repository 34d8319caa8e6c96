//! `nicsim transfer`: the main job.

use crate::output::{bytes_bar, grouped, line, table, thousandths};
use crate::units;
use anyhow::{bail, Context, Result};
use clap::Args;
use cpu_time::ProcessTime;
use nic_rtl::params::NicParams;
use nic_testbench::bench::{Surroundings, TraceConfig};
use nic_testbench::transfer::{self, TransferPlan, TransferReport};
use nic_testbench::wire::write_pcap;
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

/// Largest file: it is held in memory three times.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Args)]
pub struct TransferArgs {
    /// File to send
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Where to write what arrived
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Paths of the connection and parallel links of the network
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(NicParams::default().paths)))]
    paths: u32,
    /// Loss on each parallel link, both ways (such as 1%, 0.1%, 250ppm)
    #[arg(long, default_value = "0%", value_parser = units::fraction_ppm, value_name = "FRACTION")]
    loss: u32,
    /// Root of every random choice; the same seed gives the same run
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Largest message
    #[arg(long, default_value = "1MiB", value_parser = units::size_bytes, value_name = "SIZE")]
    message_size: u64,
    /// Largest payload of a packet: 1024, 2048, 4096 or 8192
    #[arg(long, default_value = "4096", value_parser = units::size_bytes, value_name = "SIZE")]
    pmtu: u64,
    /// Rate of each parallel link
    #[arg(long, default_value = "100Gbps", value_parser = units::rate_mbps, value_name = "RATE")]
    rate: u64,
    /// Delay of each parallel link
    #[arg(long, default_value = "1us", value_parser = units::time_ps, value_name = "TIME")]
    delay: u64,
    /// IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// Random latency, order and back-pressure at every port of the cards
    #[arg(long)]
    stress: bool,
    /// Write the frames on the sender's wire as a pcap file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write an FST trace of the sending card (slow)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Clock cycles to trace, such as 1000..5000
    #[arg(long, default_value = "0..", value_parser = units::cycle_range, value_name = "RANGE", requires = "trace")]
    trace_cycles: (u64, u64),
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// No progress bar
    #[arg(long)]
    quiet: bool,
}

fn plan(args: &TransferArgs) -> Result<TransferPlan> {
    let size = std::fs::metadata(&args.file)
        .with_context(|| format!("reading {} (give --file a file that exists)", args.file.display()))?;
    if !size.is_file() {
        bail!("{} is no file (give --file a regular file)", args.file.display());
    }
    if size.len() > FILE_BYTES_MAX {
        bail!(
            "{} has {} bytes, more than the {FILE_BYTES_MAX} that a simulation takes (send a smaller file)",
            args.file.display(),
            size.len()
        );
    }
    let data = std::fs::read(&args.file).with_context(|| format!("reading {}", args.file.display()))?;
    let pmtu_log2 = match args.pmtu {
        1024 | 2048 | 4096 | 8192 => args.pmtu.ilog2() as u8,
        other => bail!("--pmtu {other} is none of 1024, 2048, 4096, 8192"),
    };
    let message_bytes = u32::try_from(args.message_size)
        .ok()
        .filter(|s| (1..=1 << 30).contains(s))
        .with_context(|| format!("--message-size {} is outside of 1 byte to 1GiB", args.message_size))?;
    Ok(TransferPlan {
        paths: args.paths,
        loss_ppm: args.loss,
        seed: args.seed,
        message_bytes,
        pmtu_log2,
        link_mbps: args.rate,
        link_delay_ps: args.delay,
        is_ipv6: args.ipv6,
        surroundings: if args.stress { Surroundings::Stress } else { Surroundings::Typical },
        trace: args.trace.clone().map(|path| TraceConfig { path, cycles: args.trace_cycles.0..args.trace_cycles.1 }),
        keep_frames: args.pcap.is_some(),
        ..TransferPlan::new(data)
    })
}

/// Runs the command.
pub fn run(args: &TransferArgs) -> Result<ExitCode> {
    let plan = plan(args)?;
    // Opened before the run, so that a path that cannot be written is known at once.
    let out = File::create(&args.out)
        .with_context(|| format!("creating {} (give --out a file in a folder that exists)", args.out.display()))?;
    let pcap = match &args.pcap {
        Some(path) => Some((path, File::create(path).with_context(|| format!("creating {}", path.display()))?)),
        None => None,
    };
    let bar = bytes_bar(plan.data.len() as u64, args.quiet || args.json);
    bar.set_message("building the model");
    bar.tick();
    let mut first = None;
    let outcome = transfer::run(&plan, |p| {
        first.get_or_insert_with(|| (ProcessTime::now(), p.cycles));
        bar.set_message("sending");
        bar.set_position(p.done_bytes);
    });
    bar.finish_and_clear();
    let report = match outcome {
        Ok(report) => report,
        Err(
            error @ (transfer::TransferError::Completion { .. }
            | transfer::TransferError::WrongReceive { .. }
            | transfer::TransferError::Stalled { .. }),
        ) => {
            eprintln!("nicsim: the transfer failed: {error}");
            return Ok(ExitCode::from(1));
        }
        Err(error) => return Err(anyhow::Error::new(error).context("the transfer could not run")),
    };
    // Clock cycles that both cards went through since the first progress, per second of CPU time of all threads.
    let cycles_per_s = first.map_or(0, |(at, cycles)| {
        let done = (report.simulated_cycles / 2).saturating_sub(cycles);
        (u128::from(done) * 1_000_000 / at.elapsed().as_micros().max(1)) as u64
    });
    write_all(out, &report.received).with_context(|| format!("writing {}", args.out.display()))?;
    if let Some((path, file)) = pcap {
        write_pcap(report.frames.clone(), BufWriter::new(file))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let is_equal = report.received == plan.data;
    if args.json {
        line(&to_json(&plan, &report, is_equal, cycles_per_s).to_string())?;
    } else {
        line(to_text(&plan, &report, is_equal, cycles_per_s).trim_end())?;
    }
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn write_all(mut file: File, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    file.write_all(bytes)?;
    file.flush()
}

fn to_json(plan: &TransferPlan, r: &TransferReport, is_equal: bool, cycles_per_s: u64) -> serde_json::Value {
    let counters: serde_json::Map<_, _> =
        r.counters.iter().map(|c| (c.0.to_string(), json!({"sender": c.2, "receiver": c.3}))).collect();
    let drops: serde_json::Map<_, _> =
        r.network_drops.iter().map(|(cause, n)| ((*cause).to_string(), json!(n))).collect();
    json!({
        "schema": 1,
        "command": "transfer",
        "is_equal": is_equal,
        "bytes": r.received.len(),
        "paths": plan.paths,
        "loss_ppm": plan.loss_ppm,
        "seed": plan.seed,
        "simulated_ps": r.elapsed_ps,
        "cycles": r.elapsed_cycles,
        "clock_khz": r.clock_khz,
        "goodput_mbps": r.goodput_mbps(),
        "tx_busy_permille": r.tx_busy_permille,
        "lost_data_packets": r.lost_data_frames,
        "retransmitted_gap": r.counter("tx_rtx_gap_count").0,
        "retransmitted_rto": r.counter("tx_rtx_rto_count").0,
        "duplicates": r.counter("rx_duplicate_count").1,
        "network_drops": drops,
        "counters": counters,
        "iommu_faults": r.iommu_faults,
        "cycles_per_cpu_second": cycles_per_s,
    })
}

fn to_text(plan: &TransferPlan, r: &TransferReport, is_equal: bool, cycles_per_s: u64) -> String {
    let drops: Vec<String> = r.network_drops.iter().map(|(cause, n)| format!("{n} {cause}")).collect();
    let loss = format!("{}.{:04}", plan.loss_ppm / 10_000, plan.loss_ppm % 10_000);
    let mut out = table(&[
        vec![
            "bytes".into(),
            format!("{}  ({})", grouped(r.received.len() as u64), if is_equal { "equal" } else { "DIFFERENT" }),
        ],
        vec!["paths, loss, seed".into(), format!("{}, {loss} %, {}", plan.paths, plan.seed)],
        vec!["simulated time".into(), format!("{} us", thousandths(r.elapsed_ps / 1000))],
        vec!["cycles".into(), format!("{} at {} MHz", grouped(r.elapsed_cycles), r.clock_khz / 1000)],
        vec!["goodput".into(), format!("{} Gb/s", thousandths(r.goodput_mbps()))],
        vec!["transmit stream busy".into(), format!("{}.{} %", r.tx_busy_permille / 10, r.tx_busy_permille % 10)],
        vec!["network dropped".into(), if drops.is_empty() { "0".into() } else { drops.join(", ") }],
        vec!["data packets lost".into(), grouped(r.lost_data_frames)],
        vec![
            "retransmitted".into(),
            format!("{} by gap, {} by timeout", r.counter("tx_rtx_gap_count").0, r.counter("tx_rtx_rto_count").0),
        ],
        vec!["duplicates".into(), grouped(r.counter("rx_duplicate_count").1)],
        vec![
            "simulation speed".into(),
            format!("{} kilo-cycles per second of CPU time, both cards together", thousandths(cycles_per_s)),
        ],
    ]);
    out.push('\n');
    let mut rows = vec![vec!["counter".to_string(), "sender".into(), "receiver".into()]];
    rows.extend(
        r.counters
            .iter()
            .map(|c| vec![format!("{}{}", c.0, if c.1 { " (drop)" } else { "" }), grouped(c.2), grouped(c.3)]),
    );
    out += &table(&rows);
    out
}
