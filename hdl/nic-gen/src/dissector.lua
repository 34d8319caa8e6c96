-- The engine: walks the tables above. It reads nothing beyond what was captured.

local proto = Proto("metaroce", "MetaRoCE transport")
local bit = bit or bit32

-- One ProtoField a field, named metaroce.<header>.<field>.
local pf, pf_list = {}, {}

local function field_bytes(f)
  local first = math.floor(f.bit / 8)
  return first, math.floor((f.bit + f.bits - 1) / 8) - first + 1
end

local function make_field(header, f)
  local abbr = "metaroce." .. header .. "." .. f.name
  local _, len = field_bytes(f)
  if f.bits > 64 then return ProtoField.bytes(abbr, f.name, base.NONE, f.doc) end
  if f.bits == 64 then return ProtoField.uint64(abbr, f.name, base.HEX, nil, nil, f.doc) end
  local low = 8 * len - (f.bit % 8) - f.bits
  local mask = (2 ^ f.bits - 1) * 2 ^ low
  local whole = f.bits == 8 * len
  if f.bits == 1 then return ProtoField.bool(abbr, f.name, 8 * len, nil, mask, f.doc) end
  local new = ({ ProtoField.uint8, ProtoField.uint16, ProtoField.uint24, ProtoField.uint32 })[len]
  return new(abbr, f.name, f.codes and base.HEX or base.DEC_HEX, f.codes, not whole and mask or nil, f.doc)
end

for name, header in pairs(headers) do
  pf[name] = { ProtoField.none("metaroce." .. name, string.upper(name), header.doc) }
  for i, f in ipairs(header.fields) do pf[name][i + 1] = make_field(name, f) end
  for _, field in ipairs(pf[name]) do pf_list[#pf_list + 1] = field end
end

local pf_received = ProtoField.uint24("metaroce.sack.received", "received", base.DEC_HEX, nil, nil, "PSEQ that the bitmap says is received")
local pf_payload = ProtoField.bytes("metaroce.payload", "payload", base.NONE, "Payload without pad")
local pf_opaque = ProtoField.bytes("metaroce.opaque", "opaque", base.NONE, "Content that this version does not define")
local pf_pad = ProtoField.bytes("metaroce.pad", "pad", base.NONE, "Zero bytes after the payload")
local pf_icrc = ProtoField.uint32("metaroce.icrc", "icrc", base.HEX, nil, nil, "Invariant CRC")
local pf_icrc_good = ProtoField.bool("metaroce.icrc.good", "icrc is right", base.NONE, nil, 0, "The invariant CRC equals the computed one")
for _, field in ipairs({ pf_received, pf_payload, pf_opaque, pf_pad, pf_icrc, pf_icrc_good }) do pf_list[#pf_list + 1] = field end
proto.fields = pf_list

local function drop_expert(counter, group)
  return ProtoExpert.new("metaroce." .. counter:gsub("_count$", ""), counter .. ": " .. drops[counter], group, expert.severity.ERROR)
end
local expert_icrc = drop_expert("rx_bad_icrc_count", expert.group.CHECKSUM)
local expert_truncated = drop_expert("rx_truncated_count", expert.group.MALFORMED)
local expert_opcode = drop_expert("rx_unknown_opcode_count", expert.group.UNDECODED)
local expert_length = drop_expert("rx_bad_length_count", expert.group.MALFORMED)
local expert_unverified = ProtoExpert.new("metaroce.icrc_not_verified", "The ICRC was not verified: not all it covers was captured", expert.group.CHECKSUM, expert.severity.NOTE)
proto.experts = { expert_icrc, expert_truncated, expert_opcode, expert_length, expert_unverified }

-- CRC-32 of Ethernet as a table of 256 entries.
local crc_table = {}
for byte = 0, 255 do
  local crc = byte
  for _ = 1, 8 do
    crc = bit.bxor(bit.rshift(crc, 1), bit.band(crc, 1) == 1 and 0xedb88320 or 0)
  end
  crc_table[byte] = crc
end

local function crc_update(crc, bytes)
  for i = 1, #bytes do
    crc = bit.bxor(bit.rshift(crc, 8), crc_table[bit.band(bit.bxor(crc, bytes:byte(i)), 0xff)])
  end
  return crc
end

-- The bytes with ones in the masked places.
local function with_ones(bytes, masked)
  local out = {}
  for i = 1, #bytes do out[i] = string.char(bit.bor(bytes:byte(i), masked[i - 1] or 0)) end
  return table.concat(out)
end

local ipv4_info, ipv6_info, udp_info = Field.new("ip"), Field.new("ipv6"), Field.new("udp")

-- The innermost IP header that ends where the UDP header begins, masked; nil when it cannot be had.
local function masked_ip_and_udp()
  local udps = { udp_info() }
  local udp = udps[#udps]
  if not udp or not udp.range then return nil end
  for _, ip in ipairs({ ipv4_info() }) do
    if ip.len == IPV4_BYTES and ip.offset + ip.len == udp.offset then
      return with_ones(ip.range:raw(), masked_ipv4) .. with_ones(udp.range(0, UDP_BYTES):raw(), masked_udp)
    end
  end
  for _, ip in ipairs({ ipv6_info() }) do
    if ip.offset + IPV6_BYTES == udp.offset then
      return with_ones(ip.range(0, IPV6_BYTES):raw(), masked_ipv6) .. with_ones(udp.range(0, UDP_BYTES):raw(), masked_udp)
    end
  end
end

-- Whether the last four bytes are the ICRC of the rest; nil when that cannot be told.
local function icrc_is_right(tvb)
  local covered = tvb:reported_len() - ICRC_BYTES
  if tvb:len() < covered + ICRC_BYTES or covered < headers.bth.len then return nil end
  local before = masked_ip_and_udp()
  if not before then return nil end
  local bth = with_ones(tvb:raw(0, headers.bth.len), masked_bth)
  local crc = crc_update(bit.bnot(0), string.rep("\255", 8) .. before .. bth)
  if covered > headers.bth.len then crc = crc_update(crc, tvb:raw(headers.bth.len, covered - headers.bth.len)) end
  return bit.tobit(bit.bnot(crc)) == bit.tobit(tvb(covered, ICRC_BYTES):le_uint())
end

local function find(header, name)
  for _, f in ipairs(headers[header].fields) do
    if f.name == name then return f end
  end
end

-- A field of at most 24 bits of the header at byte `at`.
local function value(tvb, at, header, name)
  local f = find(header, name)
  local first, len = field_bytes(f)
  return tvb(at + first, len):bitfield(f.bit % 8, f.bits)
end

local function add_header(tvb, tree, name, at)
  local header = headers[name]
  local sub = tree:add(pf[name][1], tvb(at, header.len))
  for i, f in ipairs(header.fields) do
    local first, len = field_bytes(f)
    sub:add(pf[name][i + 1], tvb(at + first, len))
  end
  return sub
end

-- One generated line for each packet that the bitmap says is received.
local function add_received(tvb, sub, at, cum)
  for i = 0, 255 do
    local byte = tvb(at + math.floor(i / 8), 1)
    if byte:bitfield(i % 8, 1) == 1 then sub:add(pf_received, byte, (cum + 1 + i) % 2 ^ 24):set_generated() end
  end
end

local function summary(tvb, at_of, info)
  local text = string.format("%s conn=%#x path=%d", info.name, value(tvb, 0, "bth", "dest_qpn"), value(tvb, at_of.pxth, "pxth", "path_id"))
  if info.sequenced then text = text .. " pseq=" .. value(tvb, 0, "bth", "pseq") end
  if value(tvb, 0, "bth", "rtx") == 1 then text = text .. " RTX" end
  if at_of.mxth then text = text .. " mseq=" .. value(tvb, at_of.mxth, "mxth", "mseq") end
  if at_of.axth then
    text = text .. string.format(" apath=%d cum=%d trig=%d", value(tvb, at_of.axth, "axth", "apath"),
      value(tvb, at_of.axth, "axth", "cum_pseq"), value(tvb, at_of.axth, "axth", "trig_pseq"))
  end
  if at_of.nxth then
    local reason = value(tvb, at_of.nxth, "nxth", "reason")
    text = text .. " NAK " .. (codes.nakreason[reason] or string.format("%#x", reason))
  end
  return text
end

local function is_present(tvb, at_of, step)
  for _, flag in ipairs(step.flags or {}) do
    if value(tvb, at_of[step.holder], step.holder, flag) == 0 then return false end
  end
  return true
end

-- Adds the headers. Gives where each one is, and where the content behind them begins; nil when they do not fit.
local function add_chain(tvb, tree, info)
  local at_of, at, stop = {}, 0, tvb:reported_len() - ICRC_BYTES
  local chain = { { "bth" }, { "pxth" } }
  for _, step in ipairs(info and info.steps or {}) do chain[#chain + 1] = step end
  for _, step in ipairs(chain) do
    local name = step[1]
    if is_present(tvb, at_of, step) then
      local len = headers[name].len
      if at + len > stop or at + len > tvb:len() then
        tree:add_tvb_expert_info(expert_truncated, tvb(math.min(at, tvb:len() - 1)))
        return at_of, nil
      end
      local sub = add_header(tvb, tree, name, at)
      if name == "sack" then add_received(tvb, sub, at, value(tvb, at_of.axth, "axth", "cum_pseq")) end
      at_of[name] = at
      at = at + len
    end
  end
  return at_of, at
end

local function add_range(tvb, tree, field, at, stop)
  local last = math.min(stop, tvb:len())
  if at < last then tree:add(field, tvb(at, last - at)) end
end

local function add_body(tvb, tree, info, at)
  local stop = tvb:reported_len() - ICRC_BYTES
  local pad = value(tvb, 0, "bth", "pad_count")
  if not info or info.body == "opaque" then
    add_range(tvb, tree, pf_opaque, at, stop)
  elseif info.body == "payload" and at + pad <= stop then
    add_range(tvb, tree, pf_payload, at, stop - pad)
    add_range(tvb, tree, pf_pad, stop - pad, stop)
  elseif at < stop or pad > 0 then
    tree:add_tvb_expert_info(expert_length, tvb(math.min(at, tvb:len() - 1)))
    add_range(tvb, tree, pf_opaque, at, stop)
  end
end

local function add_icrc(tvb, tree)
  local at = tvb:reported_len() - ICRC_BYTES
  if at < 0 or at + ICRC_BYTES > tvb:len() then return end
  local item = tree:add(pf_icrc, tvb(at, ICRC_BYTES))
  local right = icrc_is_right(tvb)
  if right == nil then
    item:add_proto_expert_info(expert_unverified)
    return
  end
  tree:add(pf_icrc_good, tvb(at, ICRC_BYTES), right):set_generated()
  if not right then item:add_proto_expert_info(expert_icrc) end
end

local function has_our_version(tvb)
  return tvb:len() >= 2 and value(tvb, 0, "bth", "tver") == TVER
end

local function dissect(tvb, pinfo, root)
  pinfo.cols.protocol = "MetaRoCE"
  local info = opcodes[tvb(0, 1):uint()]
  local tree = root:add(proto, tvb(), "MetaRoCE transport, " .. (info and info.name or "unknown opcode"))
  local at_of, at = add_chain(tvb, tree, info)
  if not info then tree:add_tvb_expert_info(expert_opcode, tvb(0, 1)) end
  if at_of.pxth then
    pinfo.cols.info = summary(tvb, at_of, info or { name = string.format("opcode %#04x", tvb(0, 1):uint()) })
  end
  if at then add_body(tvb, tree, info, at) end
  add_icrc(tvb, tree)
  return tvb:len()
end

-- On the port: packets of another version go to the dissector that was there before.
local udp_ports = DissectorTable.get("udp.port")
local before = udp_ports:get_dissector(UDP_DPORT)

function proto.dissector(tvb, pinfo, root)
  if has_our_version(tvb) then return dissect(tvb, pinfo, root) end
  if before then return before:call(tvb, pinfo, root) end
  return 0
end
udp_ports:add(UDP_DPORT, proto)

-- On other ports: a known opcode of our version whose ICRC is right, or cannot be told wrong.
proto:register_heuristic("udp", function(tvb, pinfo, root)
  local least = headers.bth.len + headers.pxth.len + ICRC_BYTES
  if tvb:len() < least or not has_our_version(tvb) or not opcodes[tvb(0, 1):uint()] then return false end
  if value(tvb, 0, "bth", "resv5") ~= 0 or icrc_is_right(tvb) == false then return false end
  dissect(tvb, pinfo, root)
  return true
end)
