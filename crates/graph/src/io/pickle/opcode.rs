//! Opcodes of pickle protocol 2: constants for the supported ones, names of the others for messages.

pub(super) const MARK: u8 = b'(';
pub(super) const STOP: u8 = b'.';
pub(super) const NONE: u8 = b'N';
pub(super) const REDUCE: u8 = b'R';
pub(super) const BINSTRING: u8 = b'T';
pub(super) const SHORT_BINSTRING: u8 = b'U';
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const BININT2: u8 = b'M';
pub(super) const APPEND: u8 = b'a';
pub(super) const BUILD: u8 = b'b';
pub(super) const GLOBAL: u8 = b'c';
pub(super) const APPENDS: u8 = b'e';
pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const SETITEM: u8 = b's';
pub(super) const TUPLE: u8 = b't';
pub(super) const SETITEMS: u8 = b'u';
pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const PROTO: u8 = 0x80;
pub(super) const NEWOBJ: u8 = 0x81;
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const LONG1: u8 = 0x8A;

/// Returns the name of an unsupported opcode; its number if Python has no name for it.
pub(super) fn name(code: u8) -> String {
    let name = match code {
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'F' => "FLOAT",
        b'G' => "BINFLOAT",
        b'I' => "INT",
        b'L' => "LONG",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        b'S' => "STRING",
        b'V' => "UNICODE",
        b'X' => "BINUNICODE",
        b'd' => "DICT",
        b'g' => "GET",
        b'i' => "INST",
        b'l' => "LIST",
        b'o' => "OBJ",
        b'p' => "PUT",
        b'B' => "BINBYTES",
        b'C' => "SHORT_BINBYTES",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x8B => "LONG4",
        0x8C => "SHORT_BINUNICODE",
        0x8D => "BINUNICODE8",
        0x8E => "BINBYTES8",
        0x8F => "EMPTY_SET",
        0x90 => "ADDITEMS",
        0x91 => "FROZENSET",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        0x94 => "MEMOIZE",
        0x95 => "FRAME",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return format!("{code:#04x}"),
    };
    name.into()
}
