//! The graph's nodes: what a signal is made of.
use std::panic::Location;

/// Index of a node in its module.
pub(crate) type Id = u32;

/// Kind of a node with its operands. The width stands in [`Node`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum K {
    /// Input port, by port index.
    In(u32),
    Const(Box<[u64]>),
    /// Net with a driver assigned later, by slot index: output ports, wires, inputs of instances.
    Wire(u32),
    /// Output of an instance: instance index, port index in the child.
    InstOut(u32, u32),
    Reg(u32),
    /// Registered read port: memory index, read-port index.
    Read(u32, u32),
    /// Asynchronous read: memory index, address.
    ReadAsync(u32, Id),
    /// Another name of the same value.
    Buf(Id),
    /// The same value, declared safe to sample by another clock.
    Cross(Id),
    Not(Id),
    And(Id, Id),
    Or(Id, Id),
    Xor(Id, Id),
    Add(Id, Id),
    Sub(Id, Id),
    Mul(Id, Id),
    Eq(Id, Id),
    /// Unsigned less-than.
    Lt(Id, Id),
    /// Signed less-than.
    Slt(Id, Id),
    Mux(Id, Id, Id),
    /// Bits from `.1` on.
    Slice(Id, u32),
    /// Concatenation, most significant part first.
    Cat(Box<[Id]>),
    AllOnes(Id),
    AnyOne(Id),
    Parity(Id),
    Shl(Id, Id),
    Shr(Id, Id),
}

/// A node with width, name and the line that made it.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub k: K,
    pub w: u32,
    pub name: Option<String>,
    pub attrs: Vec<(String, String)>,
    pub loc: &'static Location<'static>,
}

impl K {
    /// Calls `f` with each operand.
    pub fn each_arg(&self, mut f: impl FnMut(Id)) {
        match self {
            K::In(_) | K::Const(_) | K::Wire(_) | K::InstOut(..) | K::Reg(_) | K::Read(..) => {}
            K::ReadAsync(_, a) | K::Buf(a) | K::Cross(a) | K::Not(a) | K::Slice(a, _) => f(*a),
            K::AllOnes(a) | K::AnyOne(a) | K::Parity(a) => f(*a),
            K::And(a, b) | K::Or(a, b) | K::Xor(a, b) | K::Add(a, b) | K::Sub(a, b) | K::Mul(a, b) => {
                f(*a);
                f(*b);
            }
            K::Eq(a, b) | K::Lt(a, b) | K::Slt(a, b) | K::Shl(a, b) | K::Shr(a, b) => {
                f(*a);
                f(*b);
            }
            K::Mux(c, a, b) => {
                f(*c);
                f(*a);
                f(*b);
            }
            K::Cat(v) => v.iter().for_each(|a| f(*a)),
        }
    }

    /// The same kind with every operand replaced by `f`'s answer.
    pub fn map_args(&self, mut f: impl FnMut(Id) -> Id) -> K {
        match self {
            K::In(_) | K::Const(_) | K::Wire(_) | K::InstOut(..) | K::Reg(_) | K::Read(..) => self.clone(),
            K::ReadAsync(m, a) => K::ReadAsync(*m, f(*a)),
            K::Buf(a) => K::Buf(f(*a)),
            K::Cross(a) => K::Cross(f(*a)),
            K::Not(a) => K::Not(f(*a)),
            K::Slice(a, lo) => K::Slice(f(*a), *lo),
            K::AllOnes(a) => K::AllOnes(f(*a)),
            K::AnyOne(a) => K::AnyOne(f(*a)),
            K::Parity(a) => K::Parity(f(*a)),
            K::And(a, b) => K::And(f(*a), f(*b)),
            K::Or(a, b) => K::Or(f(*a), f(*b)),
            K::Xor(a, b) => K::Xor(f(*a), f(*b)),
            K::Add(a, b) => K::Add(f(*a), f(*b)),
            K::Sub(a, b) => K::Sub(f(*a), f(*b)),
            K::Mul(a, b) => K::Mul(f(*a), f(*b)),
            K::Eq(a, b) => K::Eq(f(*a), f(*b)),
            K::Lt(a, b) => K::Lt(f(*a), f(*b)),
            K::Slt(a, b) => K::Slt(f(*a), f(*b)),
            K::Shl(a, b) => K::Shl(f(*a), f(*b)),
            K::Shr(a, b) => K::Shr(f(*a), f(*b)),
            K::Mux(c, a, b) => K::Mux(f(*c), f(*a), f(*b)),
            K::Cat(v) => K::Cat(v.iter().map(|a| f(*a)).collect()),
        }
    }

    /// Whether the node is a net by itself (has a declaration of its own in the Verilog).
    pub fn is_net(&self) -> bool {
        matches!(self, K::In(_) | K::Wire(_) | K::InstOut(..) | K::Reg(_) | K::Read(..))
    }
}
