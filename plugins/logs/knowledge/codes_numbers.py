"""Error numbers of ACL, the runtime and aclnn, as data: number, kind of fault, what its source says of it.

The kinds are those of codes.KINDS.  The words are the sources' own, cut to their first sentence.
"""

from __future__ import annotations

ACL_SOURCE = "torch_npu NPUErrorCodes.h"
ACL = """
100000|usage|Parameter verification failed
100001|usage|ACL uninitialized
100002|note|Repeated initialization or repeated loading
100003|setup|Invalid file
100004|setup|Failed to write the file
100005|usage|Invalid file size
100006|usage|Failed to parse the file
100007|usage|The file is missing parameters
100008|usage|Invalid file parameter
100009|setup|Invalid dump configuration
100010|setup|Invalid Profiling configuration
100011|usage|Invalid model ID
100012|usage|Failed to deserialize the model
100013|usage|Failed to parse the model
100014|usage|Failed to read the model
100015|usage|Invalid model size
100016|usage|The model is missing parameters
100017|usage|The input for the model does not match
100018|usage|The output of the model does not match
100019|usage|Model is not-dynamic
100020|usage|The type of a single operator does not match
100021|usage|The input of a single operator does not match
100022|usage|The output of a single operator does not match
100023|usage|The attributes of a single operator do not match
100024|usage|Single operator not found
100025|usage|Failed to load a single operator
100026|usage|Unsupported data type
100027|usage|The format does not match
100028|usage|the operator has no selector registered
100029|usage|During operator compilation, the operator kernel haven't registered
100030|usage|the operator is registered repeatedly
100031|usage|During operator compilation, the operator kernel is registered repeatedly
100032|usage|Invalid queue ID
100033|note|Duplicate subscription
100034|usage|The stream is not subscribed
100035|usage|The thread is not subscribed
100036|wait|Waiting for callback time out
100037|note|Repeated deinitialization
100038|usage|The static AIPP configuration information does not exist
100039|setup|The dynamic library path is that of the compilation stub
100040|usage|Group is not set
100041|usage|No corresponding Group is created
100042|usage|A profiling data collection task exists
100043|usage|The acl.prof.init interface is not used for analysis initialization
100044|usage|A task for obtaining dump data exists
100045|usage|The acl.mdl.init_dump interface is not used to initialize the dump
107000|usage|Parameter verification failed
107001|usage|Invalid device ID
107002|usage|The context is empty
107003|context|The stream is not in the current context
107004|usage|The model is not in the current context
107005|usage|The stream is not in the current model
107006|usage|The event timestamp is invalid
107007|usage|Invert the event timestamp
107008|usage|The memory address is not aligned
107009|setup|Failed to open the file
107010|setup|Failed to write the file
107011|usage|The stream is not subscribed to or subscribed to repeatedly
107012|usage|The thread is not subscribed or subscribed repeatedly
107013|usage|The group is not set
107014|usage|The corresponding group is not created
107015|usage|The stream corresponding to the callback is not registered with the thread
107016|usage|Invalid memory type
107017|usage|Invalid resource handle
107018|usage|The memory type applied for is incorrect
107019|wait|Task execution timed out
148046|usage|Subscribe to the same model repeatedly
148047|usage|A conflict occurs in invoking the interface for collecting performance data
148048|usage|Invalid operator cache information aging configuration
148049|setup|ASCEND_OPP_PATH is not set, or incorrect
148050|usage|The operator does not support dynamic Shape
148051|usage|Related resources have not been released
148052|usage|Input image encoding format that is not supported by the JPEGD function
200000|memory|Failed to apply for memory
200001|usage|The interface does not support this function
200002|usage|Invalid device
200003|usage|The memory address is not aligned
200004|usage|The resources do not match
200005|usage|Invalid resource handle
200006|usage|This feature is not supported
200007|usage|Unsupported profiling configurations are delivered
207000|usage|This feature is not supported
207001|memory|Failed to apply for memory
207002|inner|Failed to release the memory
207003|overflow|The operation of the aicore operator overflows
207004|lost|The device is unavailable
207005|resource|Failed to apply for memory
207006|setup|You do not have the operation permission
207007|resource|Event resources are insufficient
207008|resource|Stream resources are insufficient
207009|resource|Notify resources in the system are insufficient
207010|resource|Insufficient model resources
207011|resource|Runtime internal resources are insufficient
207012|resource|The number of queues exceeds the upper limit
207013|note|The queue is empty
207014|note|The queue is full
207015|resource|The queue is initialized repeatedly
207018|memory|The memory on the device is exhausted
300000|setup|The storage limit is exceeded
500000|inner|Unknown internal error
500001|inner|The internal ACL of the system is incorrect
500002|inner|A GE error occurs in the system
500003|inner|The internal RUNTIME of the system is incorrect
500004|inner|An internal DRV (Driver) error occurs
500005|inner|Profiling error
507000|inner|An internal error occurs in the runtime module on the host
507001|fault|An internal error occurs in the task scheduler module on the device
507002|resource|The number of tasks on the stream reaches the maximum
507003|note|The number of tasks on the stream is empty
507004|note|Not all tasks on the stream are executed
507005|note|Task execution on the AI CPU is complete
507006|note|The event is not complete
507007|note|Failed to release the context
507008|usage|Failed to obtain the SOC version
507009|usage|The task type is not supported
507010|lost|The task scheduler loses the heartbeat
507011|model|Model execution failed
507012|wait|Failed to obtain the task scheduler message
507013|fault|System Direct Memory Access (DMA) hardware execution error
507014|stuck|The aicore execution times out
507015|fault|The aicore execution is abnormal
507016|fault|An exception occurs when the aicore trap is executed
507017|stuck|The aicpu execution times out
507018|fault|The aicpu execution is abnormal
507019|fault|The AICPU does not send a response to the task scheduler after data dump
507020|fault|The AICPU does not send a response to the task scheduler after executing the model
507021|inner|The profiling function is abnormal
507022|inner|The communication between processes is abnormal
507023|note|The model exits
507024|inner|The operator is being deregistered
507025|inner|The ring buffer function is not initialized
507026|inner|The ring buffer has no data
507027|inner|The kernel in RUNTIME is not registered
507028|inner|Repeatedly register the kernel inside the RUNTIME
507029|inner|The debug function failed to be registered
507030|inner|Deregistration of the debugging function fails
507031|inner|The tag is not in the current context
507032|inner|The number of registered programs exceeds the upper limit
507033|start|Failed to start the device
507034|stuck|Vector core execution timed out
507035|fault|The vector core execution is abnormal
507036|fault|An exception occurs when vector core traps are executed
507037|inner|An exception occurred when applying for internal resources of the Runtime
507038|usage|An error occurred when modifying the die mode, can not change the die mode
507039|usage|The die cannot be specified in single-die mode
507040|usage|The specified die ID is incorrect
507041|usage|The die mode is not set
507042|bounds|The aicore trap read out-of-bounds exception
507043|bounds|The aicore trap write out-of-bounds exception
507044|bounds|Vector core trap read out-of-bounds exception
507045|bounds|Vector core trap write out-of-bounds exception
507046|wait|In the specified timeout waiting event, all tasks in the specified stream are not completed
507047|wait|During the specified event synchronization waiting time, the event is not executed completely
507048|stuck|The execution of the internal task times out
507049|fault|An exception occurs during the execution of an internal task
507050|fault|The trap of the internal task is abnormal
507051|inner|Messages fail to be sent during data enqueuing
507052|inner|Memory copy fails during data enqueuing
507899|inner|An internal error occurs in the Driver module
507900|fault|An internal error occurs on the AI CPU module
507901|lost|The internal host device communication (HDC) session is disconnected
"""

RUNTIME_SOURCE = "CANN acl/error_codes/rt_error_codes.h"
RUNTIME = """
107020|wait|task timeout
107021|usage|not set sysparamopt
107022|stop|device task aborting
107023|stop|stream aborting
107024|capture|capture dependency failure
107025|capture|invalid capture model
107026|capture|model is captured
107027|capture|stream is captured
107028|capture|event is captured
107029|capture|stream is not in capture status
107030|capture|stream is captured, not support current oper
107031|capture|a disallowed implicit dependency from default stream
107032|capture|interdependent stream cannot begin capture together
107033|capture|task group status error
107034|capture|task group interrupted
107035|stop|device task aborting stop before post process
107036|capture|the capture was not initiated in this stream
107037|capture|the model is still running
107038|capture|the thread of end capture and begin capture is not same
107039|capture|input array capacity insufficient
107040|capture|the model update failed
107041|capture|async oper convert to sync oper, stream is captured, not support current oper
107042|capture|symbol not found
107043|capture|invalid device symbol
107044|capture|invalid device function
107045|capture|stream not support
107046|capture|sub acl graph is capturing
207016|overflow|aivec over flow
207017|overflow|common over flow
207019|usage|not support to update this op
207020|wait|driver timeout
507053|hardware|device MEM ERROR
507054|hardware|hbm Multi-bit ECC error
507055|hardware|suspect device MEM ERROR
507056|hardware|link ERROR
507057|hardware|suspect remote ERROR
507902|fault|aicpu info load response error
507903|capture|capture status is invalidated
507904|peer|hccl operation retry failed
507905|inner|snapshot lock timeout
507906|inner|snapshot lock failed
507907|inner|snapshot unlock failed
507908|inner|snapshot backup failed
507909|inner|snapshot restore failed
507910|inner|host memory range already registered
507911|inner|host memory has not been registered
507912|inner|snapshot callback function execution failed
507913|inner|register snapshot callback function failed
507914|hardware|l3 port error
507915|stuck|ccu timeout
507916|fault|ccu exception
"""

ACLNN_SOURCE = "CANN documentation, aclnn return codes"
ACLNN = """
161001|check|a pointer parameter is null
161002|check|a parameter is invalid
361001|inner|a call into the runtime failed
561000|inner|inner error
561001|inner|infer shape failed
561002|inner|tiling failed
561003|package|find kernel failed
561101|inner|create executor failed
561102|inner|the executor was not passed on
561103|inner|null pointer inside
561104|inner|wrong size of attribute info
561105|inner|key conflict
561106|inner|invalid implementation mode
561107|package|the path of the operator package is not set
561108|package|loading a JSON file of the operators failed
561109|package|a JSON value of the operators is missing
561110|package|invalid format in a JSON file of the operators
561111|package|invalid dtype in a JSON file of the operators
561112|package|the binary kernel package is not loaded
561113|package|invalid operator file
561114|inner|attribute number out of bound
561115|inner|attribute length not enough
561116|inner|too many inputs in a JSON file of the operators
561117|inner|an input in a JSON file of the operators is null
561118|inner|invalid static workspace
561119|inner|invalid static block dim
"""
