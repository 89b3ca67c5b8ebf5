"""What perftest 4.5 of Debian 12 printed: its clients, over a software RDMA device (rdma_rxe) in the guest of `scripts/in-vm`."""

BANDWIDTH = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : OFF
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 1024[B]
 Link type       : Ethernet
 GID index       : 1
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0xd52888 RKey 0x0002c6 VAddr 0x005585df105000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
 remote address: LID 0000 QPN 0x0012 PSN 0x965c5a RKey 0x000349 VAddr 0x0055e719b2b000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      528              0.00               0.14   \t\t   0.000264
---------------------------------------------------------------------------------------
"""
LATENCY = """\
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: OFF
 ibv_wr* API     : OFF
 TX depth        : 1
 Mtu             : 1024[B]
 Link type       : Ethernet
 GID index       : 1
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0013 PSN 0x795b70 RKey 0x000508 VAddr 0x0055b153294000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
 remote address: LID 0000 QPN 0x0014 PSN 0xea4f32 RKey 0x0004c9 VAddr 0x0055db875a4000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:01
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\x20
 2       1000          27.06          2385.02      31.40    \t       74.88       \t176.71 \t\t1282.10 \t\t2385.02
---------------------------------------------------------------------------------------
"""
