//! The card as a typed rust-hdl block: the one kernel written by hand, which only wires.

use super::NicTop;
use crate::{
    dma::axi4::Axi4,
    host::{msix::Msix, AxiLite},
    params::NicParams,
    prim::Axis,
    stream::BEAT_BYTES,
};
use rtl_graph::{
    hdl::{port, Sink, Source},
    BlockOf, Lib,
};
use rust_hdl::prelude::*;

/// The card's pins around [`NicTop`].
#[derive(LogicBlock)]
pub struct Card {
    /// Core clock.
    pub clk: Signal<In, Clock>,
    /// Synchronous reset, active high.
    pub rst: Signal<In, Bit>,
    /// Host memory.
    pub m_axi: Source<Axi4<'static>>,
    /// BAR 0.
    pub s_axil: Sink<AxiLite<'static>>,
    /// Frames from the MAC.
    pub s_axis_rx: Sink<Axis<'static>>,
    /// Frames to the MAC.
    pub m_axis_tx: Source<Axis<'static>>,
    /// Requests for MSI-X messages.
    pub m_msix: Source<Msix<'static>>,
    /// The MAC has a link.
    pub link_up: Signal<In, Bit>,
    nic: BlockOf<NicTop<'static>>,
}

impl Card {
    /// The card of these sizes; its modules go to `lib`.
    pub fn new(lib: &Lib, params: &NicParams) -> Card {
        Card {
            clk: Default::default(),
            rst: Default::default(),
            m_axi: port(&Axi4::layout()),
            s_axil: port(&AxiLite::layout()),
            s_axis_rx: port(&Axis::layout(BEAT_BYTES)),
            m_axis_tx: port(&Axis::layout(BEAT_BYTES)),
            m_msix: port(&Msix::layout()),
            link_up: Default::default(),
            nic: NicTop::block(lib, params),
        }
    }
}

impl Logic for Card {
    #[hdl_gen]
    fn update(&mut self) {
        self.nic.clk.next = self.clk.val();
        self.nic.rst.next = self.rst.val();
        Source::<Axi4>::link(&mut self.m_axi, &mut self.nic.m_axi);
        Sink::<AxiLite>::link(&mut self.s_axil, &mut self.nic.s_axil);
        Sink::<Axis>::link(&mut self.s_axis_rx, &mut self.nic.s_axis_rx);
        Source::<Axis>::link(&mut self.m_axis_tx, &mut self.nic.m_axis_tx);
        Source::<Msix>::link(&mut self.m_msix, &mut self.nic.m_msix);
        self.nic.link_up.next = self.link_up.val().into();
    }
}
