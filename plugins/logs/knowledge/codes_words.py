"""Codes of CANN's components, of HCCL, of the task scheduler and of torch_npu, as data, with their sources.

A CANN code is a level (E, W, I), a component and four digits; from 9000 on it is an inner error.
"""

from __future__ import annotations

COMPONENTS_SOURCE = "CANN troubleshooting guide, error codes"
COMPONENTS = {
    "1": "GE",
    "2": "FE",
    "3": "AI CPU",
    "4": "TEFusion",
    "7": "vector operator plugin",
    "8": "vector operators",
    "B": "TBE pass",
    "C": "AutoTune",
    "D": "RLTune",
    "E": "runtime",
    "F": "LxFusion",
    "G": "AOE",
    "H": "ACL",
    "I": "HCCL",
    "J": "HCCP",
    "K": "profiling",
    "L": "driver",
    "M": "queue schedule",
    "N": "DVPP",
    "O": "AMCT",
    "P": "dump",
    "Z": "operators",
}

HCCL_CODES_SOURCE = "CANN hcomm, list of HCCL errors"
HCCL_CODES = """
EI0001|setup|invalid environment variable
EI0002|collective|a collective timed out: the notify of another rank did not come
EI0003|check|invalid argument of a collective
EI0004|setup|the rank table cannot be parsed
EI0005|differs|the arguments of a collective differ between ranks
EI0006|connect|getting a socket to another rank timed out
EI0007|resource|a resource of HCCL is exhausted
EI0008|setup|versions of HCCL differ between ranks
EI0009|link|initialising the transport between ranks failed
EI0010|link|P2P communication between devices failed
EI0011|memory|no device memory left for HCCL
EI0012|link|SDMA copy between devices failed
EI0013|link|RoCE network error (error CQE)
EI0014|setup|invalid value in the rank table
EI0015|connect|collecting the cluster's ranks failed
EI0016|setup|invalid configuration of HCCL
EI0017|setup|a value is missing in the rank table
EI0018|link|UB network error (error CQE)
EI0019|port|the port of the host's network adapter cannot be bound
EI0020|port|the port of the NPU's network adapter cannot be bound
"""

RUNTIME_CODES_SOURCE = "CANN runtime, error code table"
RUNTIME_CODES = """
EE1001|check|invalid argument
EE1002|wait|the stream did not finish in time
EE1003|check|invalid argument
EE1004|check|null pointer as argument
EE1005|usage|not supported by this system or device
EE1006|usage|not supported
EE1007|usage|a stream cannot be bound
EE1008|package|loading the operator kernel failed
EE1009|fault|executing the model failed
EE1010|context|an object does not belong to the current context
EE1011|check|invalid argument
EE1012|check|invalid argument
EE1013|host|no host memory left for the runtime
EE1014|package|the operator's binary cannot be parsed
EE1015|setup|the driver's version is too old
EE1016|usage|not supported
EE1017|check|invalid argument
EE1018|usage|wrong order of calls
EE1019|inner|a task could not be given to the stream
EE1020|inner|a system call failed
EE1021|resource|a resource of the host could not be made
EE2002|setup|invalid environment variable
WE0001|note|not supported
"""

OPERATOR_CODES_SOURCE = "CANN opbase, list of AclNN errors"
OPERATOR_CODES = """
EZ1001|check|invalid parameter of an operator
EZ1002|setup|environment variable not set
EZ1003|setup|invalid environment variable
EZ1004|setup|a file of the operators cannot be opened
EZ1005|package|a file of the operators cannot be parsed
EZ1006|package|a file of the operators cannot be parsed
EZ1007|check|data type not supported by the operator
EZ1008|check|wrong shape of an operator's input
EZ1009|inner|executing an operator failed
EZ9903|inner|a call of the operator library into the runtime failed
"""

GUIDE_CODES_SOURCE = "CANN troubleshooting guide, list of error codes"
GUIDE_CODES = """
EL0001|lost|the device is absent or abnormal
EL0002|check|invalid device ID
EL0003|check|invalid argument
EL0004|memory|memory could not be allocated
EL0005|resource|the resource is busy
EL0006|resource|insufficient resources
EL0007|setup|no permission
EL0008|resource|insufficient event resources
EL0009|resource|insufficient stream resources
EL0010|resource|insufficient notify resources
EL0011|resource|insufficient model resources
EL0012|resource|the service queue is full
EL0014|usage|operation not supported by the driver
EL0015|start|invalid access of a device
EL0019|memory|insufficient device memory
EJ0001|link|the HCCP process could not start
EJ0002|setup|wrong environment of HCCP
EJ0003|port|the IP address and port cannot be bound
EJ0004|setup|invalid IP address
EH0001|check|invalid argument of ACL
EH0002|check|null pointer as argument of ACL
EH0003|setup|invalid path
EH0004|setup|a file of ACL cannot be used
EH0005|check|invalid argument of ACL
EH0006|usage|not supported by ACL
EZ0001|check|invalid shape of an input
EZ0002|check|invalid attribute
EZ0003|check|invalid size of an attribute
EZ0004|check|invalid input
EZ0005|check|invalid size of an input
EZ0006|check|invalid format of an input
EZ0007|check|invalid data type of an input
EZ0501|compile|operator not supported
EZ3002|compile|operator not supported
EZ3003|compile|operator not supported
EZ9010|compile|operator not supported
E30003|usage|specification not supported by AI CPU
E30004|package|a binary of AI CPU is damaged
E30005|lost|no connection to the device
E30006|package|the operator package could not be verified
E30008|stuck|an AI CPU operator timed out
E39005|lost|a process of the device's scheduler is abnormal
E39006|package|the operator package could not be sent to the device
E39007|lost|a process on the device did not start in time
E39008|package|a binary of AI CPU could not be verified
E39009|lost|the device's status is abnormal
E40001|setup|invalid environment variable
E40002|setup|unsupported version of Python
E40020|setup|a Python module could not be imported
E40021|compile|compiling an operator failed
E40024|setup|a Python function of the compiler could not be called
E10501|compile|operator not supported
E13024|setup|invalid environment variable
E20001|compile|compiling the graph failed
E20007|compile|a fusion pass failed
E22001|compile|compiling the graph failed
EB0000|compile|compiling an operator failed
EB0500|compile|compiling an operator failed
EB1000|compile|invalid primitive in an operator
EB3000|compile|compiling an operator failed
EB4000|compile|invalid instruction in an operator
EB9000|compile|compiling an operator failed
EK0001|check|invalid argument of the profiler
EK0201|host|no host memory left for the profiler
EP0002|setup|a file of the dump cannot be used
"""

RESULTS_SOURCE = "torch_npu hccl_types.h"
RESULTS = """
1|check|parameter error
2|check|empty pointer
3|memory|memory error
4|inner|internal error
5|usage|not support feature
6|peer|not found specific resource
7|peer|resource unavailable
8|inner|call system interface error
9|collective|timeout
10|setup|open file fail
11|connect|tcp connect fail
12|link|roce connect fail
13|link|tcp transfer fail
14|link|roce transfer fail
15|peer|call runtime api fail
16|peer|call driver api fail
17|peer|call profiling api fail
18|peer|call cce api fail
19|link|call network api fail
20|peer|try again
21|link|error cqe
22|peer|communicator suspending
23|peer|retry constraint
24|memory|out of memory
"""

TASKS_SOURCE = "CANN runtime, results of the task scheduler"
TASKS = """
0x1f|fault|sys dma transfer failed
0x20|fault|sys dma mem address align failed
0x25|stuck|aicore timeout
0x26|fault|aicore exception
0x27|fault|aicore trap exception
0x28|stuck|aicpu timeout
0x2a|fault|aicpu exception
0x2f|overflow|aicore overflow
0x30|stuck|vector core timeout
0x31|fault|vector core exception
0x32|fault|vector core trap exception
0x33|overflow|aivec overflow
0x34|overflow|aicpu overflow
0x35|overflow|sdma overflow
0x91|model|the model stream execute failed
0x103|model|task exception
0x104|fault|task trap exception
0x105|stuck|task timeout
0x106|fault|task sqe error
0x10a|bounds|aic trap read overflow
0x10b|bounds|aic trap write overflow
0x10c|bounds|aiv trap read overflow
0x10d|bounds|aiv trap write overflow
0x10f|fault|fftsplus task exception
0x110|fault|fftsplus task trap exception
0x111|stuck|fftsplus task timeout
0x20b|fault|memcpy exception
0x20c|stuck|memcpy timeout
0x217|fault|sdma copy error
0x218|fault|sdma reduce error
"""
"""Their words are also what stands behind "reason=" and in the brackets behind "retCode="."""

TORCH_SOURCE = "torch_npu utils/_error_code.py"
TORCH_MODULES = {"00": "PTA", "01": "OPS", "02": "DIST", "03": "GRAPH", "04": "PROF", "99": "UNKNOWN"}
TORCH_CODES = {
    "001": "invalid parameter",
    "002": "invalid type",
    "003": "invalid value",
    "004": "invalid pointer",
    "005": "internal error",
    "006": "memory error",
    "007": "feature not supported",
    "008": "resource not found",
    "009": "resource unavailable",
    "010": "system call failed",
    "011": "timeout error",
    "012": "permission error",
    "100": "call acl api failed",
    "200": "call hccl api failed",
    "300": "call ge api failed",
    "999": "application exception",
}
