// One design with everything the tests need, so that it is compiled once.
module kit (
    input  wire         clk,
    input  wire         clk2,
    input  wire         rst,
    // counters
    input  wire         step,
    output reg  [7:0]   count,
    output reg  [15:0]  count2,
    output wire [7:0]   sum,
    input  wire [7:0]   addend,
    output wire [31:0]  power_on,
    // ways to end
    input  wire [2:0]   order,
    // stream register slice; `disturb` makes it break the protocol
    input  wire         disturb,
    input  wire [511:0] s_axis_tdata,
    input  wire [63:0]  s_axis_tkeep,
    input  wire         s_axis_tlast,
    input  wire [15:0]  s_axis_tuser,
    input  wire         s_axis_tvalid,
    output wire         s_axis_tready,
    output wire [511:0] m_axis_tdata,
    output wire [63:0]  m_axis_tkeep,
    output wire         m_axis_tlast,
    output wire [15:0]  m_axis_tuser,
    output wire         m_axis_tvalid,
    input  wire         m_axis_tready,
    // registers
    input  wire [11:0]  s_axil_awaddr,
    input  wire         s_axil_awvalid,
    output wire         s_axil_awready,
    input  wire [31:0]  s_axil_wdata,
    input  wire [3:0]   s_axil_wstrb,
    input  wire         s_axil_wvalid,
    output wire         s_axil_wready,
    output reg  [1:0]   s_axil_bresp,
    output reg          s_axil_bvalid,
    input  wire         s_axil_bready,
    input  wire [11:0]  s_axil_araddr,
    input  wire         s_axil_arvalid,
    output wire         s_axil_arready,
    output reg  [31:0]  s_axil_rdata,
    output reg  [1:0]   s_axil_rresp,
    output reg          s_axil_rvalid,
    input  wire         s_axil_rready,
    // memory interface, passed through
    input  wire [3:0]   s_axi_awid,   output wire [3:0]   m_axi_awid,
    input  wire [63:0]  s_axi_awaddr, output wire [63:0]  m_axi_awaddr,
    input  wire [7:0]   s_axi_awlen,  output wire [7:0]   m_axi_awlen,
    input  wire [2:0]   s_axi_awsize, output wire [2:0]   m_axi_awsize,
    input  wire [1:0]   s_axi_awburst, output wire [1:0]  m_axi_awburst,
    input  wire         s_axi_awvalid, output wire        m_axi_awvalid,
    output wire         s_axi_awready, input  wire        m_axi_awready,
    input  wire [511:0] s_axi_wdata,  output wire [511:0] m_axi_wdata,
    input  wire [63:0]  s_axi_wstrb,  output wire [63:0]  m_axi_wstrb,
    input  wire         s_axi_wlast,  output wire         m_axi_wlast,
    input  wire         s_axi_wvalid, output wire         m_axi_wvalid,
    output wire         s_axi_wready, input  wire         m_axi_wready,
    output wire [3:0]   s_axi_bid,    input  wire [3:0]   m_axi_bid,
    output wire [1:0]   s_axi_bresp,  input  wire [1:0]   m_axi_bresp,
    output wire         s_axi_bvalid, input  wire         m_axi_bvalid,
    input  wire         s_axi_bready, output wire         m_axi_bready,
    input  wire [3:0]   s_axi_arid,   output wire [3:0]   m_axi_arid,
    input  wire [63:0]  s_axi_araddr, output wire [63:0]  m_axi_araddr,
    input  wire [7:0]   s_axi_arlen,  output wire [7:0]   m_axi_arlen,
    input  wire [2:0]   s_axi_arsize, output wire [2:0]   m_axi_arsize,
    input  wire [1:0]   s_axi_arburst, output wire [1:0]  m_axi_arburst,
    input  wire         s_axi_arvalid, output wire        m_axi_arvalid,
    output wire         s_axi_arready, input  wire        m_axi_arready,
    output wire [3:0]   s_axi_rid,    input  wire [3:0]   m_axi_rid,
    output wire [511:0] s_axi_rdata,  input  wire [511:0] m_axi_rdata,
    output wire [1:0]   s_axi_rresp,  input  wire [1:0]   m_axi_rresp,
    output wire         s_axi_rlast,  input  wire         m_axi_rlast,
    output wire         s_axi_rvalid, input  wire         m_axi_rvalid,
    input  wire         s_axi_rready, output wire         m_axi_rready
);
    // counters
    reg [31:0] never_reset;
    assign power_on = never_reset;
    assign sum = count + addend;
    always @(posedge clk) begin
        count <= rst ? 8'd0 : count + {7'd0, step};
        never_reset <= never_reset;
    end
    always @(posedge clk2) count2 <= rst ? 16'd0 : count2 + 16'd1;

    // ways to end
    always @(posedge clk) if (!rst) begin
        if (order == 3'd1) $stop;
        if (order == 3'd2) $finish;
        if (order == 3'd3) begin
            $display("count is %0d", count);
            assert (count == 8'd255) else $error("count is not 255");
        end
        if (order == 3'd4) $display("hello from cycle %0d at %0t", count, $time);
    end
    reg odd;
    always @* odd = (order == 3'd5) & ~odd_again;
    wire odd_again /* verilator public_flat_rw */;
    assign odd_again = odd;

    // stream register slice with two entries: both valid and ready come from registers
    wire [592:0] s_beat = {s_axis_tuser, s_axis_tlast, s_axis_tkeep, s_axis_tdata};
    reg  [592:0] first, second;
    reg          first_valid, second_valid;
    assign s_axis_tready = !second_valid;
    assign m_axis_tvalid = first_valid;
    assign {m_axis_tuser, m_axis_tlast, m_axis_tkeep, m_axis_tdata} = first ^ {592'd0, disturb & second_valid};
    always @(posedge clk) begin
        if (s_axis_tready) second <= s_beat;
        if (!first_valid || m_axis_tready) begin
            first <= second_valid ? second : s_beat;
            first_valid <= second_valid || s_axis_tvalid;
            second_valid <= 1'b0;
        end else if (s_axis_tready && s_axis_tvalid) begin
            second_valid <= 1'b1;
        end
        if (rst) begin
            first_valid <= 1'b0;
            second_valid <= 1'b0;
        end
    end

    // registers: four at 0x00 to 0x0c; 0x800 never answers; anything else is a decode error
    reg [31:0] regs [0:3];
    wire write_go = s_axil_awvalid && s_axil_wvalid && !s_axil_bvalid && s_axil_awaddr != 12'h800;
    wire read_go = s_axil_arvalid && !s_axil_rvalid && s_axil_araddr != 12'h800;
    assign s_axil_awready = write_go;
    assign s_axil_wready = write_go;
    assign s_axil_arready = read_go;
    integer lane;
    always @(posedge clk) begin
        if (s_axil_bready) s_axil_bvalid <= 1'b0;
        if (s_axil_rready) s_axil_rvalid <= 1'b0;
        if (write_go) begin
            s_axil_bvalid <= 1'b1;
            s_axil_bresp <= s_axil_awaddr < 12'h10 ? 2'd0 : 2'd3;
            for (lane = 0; lane < 4; lane = lane + 1)
                if (s_axil_wstrb[lane] && s_axil_awaddr < 12'h10)
                    regs[s_axil_awaddr[3:2]][lane*8 +: 8] <= s_axil_wdata[lane*8 +: 8];
        end
        if (read_go) begin
            s_axil_rvalid <= 1'b1;
            s_axil_rresp <= s_axil_araddr < 12'h10 ? 2'd0 : 2'd3;
            s_axil_rdata <= s_axil_araddr < 12'h10 ? regs[s_axil_araddr[3:2]] : 32'hdead_beef;
        end
        if (rst) begin
            s_axil_bvalid <= 1'b0;
            s_axil_rvalid <= 1'b0;
        end
    end

    // memory interface
    assign m_axi_awid = s_axi_awid;
    assign m_axi_awaddr = s_axi_awaddr;
    assign m_axi_awlen = s_axi_awlen;
    assign m_axi_awsize = s_axi_awsize;
    assign m_axi_awburst = s_axi_awburst;
    assign m_axi_awvalid = s_axi_awvalid;
    assign s_axi_awready = m_axi_awready;
    assign m_axi_wdata = s_axi_wdata;
    assign m_axi_wstrb = s_axi_wstrb;
    assign m_axi_wlast = s_axi_wlast;
    assign m_axi_wvalid = s_axi_wvalid;
    assign s_axi_wready = m_axi_wready;
    assign s_axi_bid = m_axi_bid;
    assign s_axi_bresp = m_axi_bresp;
    assign s_axi_bvalid = m_axi_bvalid;
    assign m_axi_bready = s_axi_bready;
    assign m_axi_arid = s_axi_arid;
    assign m_axi_araddr = s_axi_araddr;
    assign m_axi_arlen = s_axi_arlen;
    assign m_axi_arsize = s_axi_arsize;
    assign m_axi_arburst = s_axi_arburst;
    assign m_axi_arvalid = s_axi_arvalid;
    assign s_axi_arready = m_axi_arready;
    assign s_axi_rid = m_axi_rid;
    assign s_axi_rdata = m_axi_rdata;
    assign s_axi_rresp = m_axi_rresp;
    assign s_axi_rlast = m_axi_rlast;
    assign s_axi_rvalid = m_axi_rvalid;
    assign m_axi_rready = s_axi_rready;
endmodule
