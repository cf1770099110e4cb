//! The messages of CRI v1 (`runtime.v1`) and of our own additions (`ferry.v1`), declared by hand so that no protobuf compiler is
//! needed to build. What is neither set nor read is left out; protobuf skips it. Enumerations are numbers.

use std::collections::HashMap;

macro_rules! messages {
    ($($name:ident { $($field:ident: $type:ty = $tag:tt [$($kind:tt)*],)* })*) => {
        $(
            #[derive(Clone, PartialEq, prost::Message, serde::Serialize)]
            pub struct $name { $(#[prost($($kind)*, tag = $tag)] pub $field: $type,)* }
        )*
    };
}

pub type Map = HashMap<String, String>;

// Who and what.
messages! {
    Empty {}
    VersionResponse {
        version: String = "1" [string],
        runtime_name: String = "2" [string],
        runtime_version: String = "3" [string],
        runtime_api_version: String = "4" [string],
    }
    RuntimeCondition {
        r#type: String = "1" [string],
        status: bool = "2" [bool],
        reason: String = "3" [string],
        message: String = "4" [string],
    }
    RuntimeStatus { conditions: Vec<RuntimeCondition> = "1" [message, repeated], }
    RuntimeHandlerFeatures {
        recursive_read_only_mounts: bool = "1" [bool],
        user_namespaces: bool = "2" [bool],
    }
    RuntimeHandler {
        name: String = "1" [string],
        features: Option<RuntimeHandlerFeatures> = "2" [message, optional],
    }
    RuntimeFeatures { supplemental_groups_policy: bool = "1" [bool], }
    StatusResponse {
        status: Option<RuntimeStatus> = "1" [message, optional],
        info: Map = "2" [map = "string, string"],
        runtime_handlers: Vec<RuntimeHandler> = "3" [message, repeated],
        features: Option<RuntimeFeatures> = "4" [message, optional],
    }
    LinuxRuntimeConfiguration { cgroup_driver: i32 = "1" [int32], }
    RuntimeConfigResponse { linux: Option<LinuxRuntimeConfiguration> = "1" [message, optional], }
    Int64Value { value: i64 = "1" [int64], }
    UInt64Value { value: u64 = "1" [uint64], }
}

// Sandboxes.
messages! {
    DnsConfig {
        servers: Vec<String> = "1" [string, repeated],
        searches: Vec<String> = "2" [string, repeated],
        options: Vec<String> = "3" [string, repeated],
    }
    PortMapping {
        protocol: i32 = "1" [int32],
        container_port: i32 = "2" [int32],
        host_port: i32 = "3" [int32],
        host_ip: String = "4" [string],
    }
    UserNamespace { mode: i32 = "1" [int32], }
    NamespaceOption {
        network: i32 = "1" [int32],
        pid: i32 = "2" [int32],
        ipc: i32 = "3" [int32],
        target_id: String = "4" [string],
        userns_options: Option<UserNamespace> = "5" [message, optional],
    }
    LinuxSandboxSecurityContext {
        namespace_options: Option<NamespaceOption> = "1" [message, optional],
        privileged: bool = "6" [bool],
    }
    LinuxPodSandboxConfig {
        cgroup_parent: String = "1" [string],
        security_context: Option<LinuxSandboxSecurityContext> = "2" [message, optional],
        sysctls: Map = "3" [map = "string, string"],
    }
    PodSandboxMetadata {
        name: String = "1" [string],
        uid: String = "2" [string],
        namespace: String = "3" [string],
        attempt: u32 = "4" [uint32],
    }
    PodSandboxConfig {
        metadata: Option<PodSandboxMetadata> = "1" [message, optional],
        hostname: String = "2" [string],
        log_directory: String = "3" [string],
        dns_config: Option<DnsConfig> = "4" [message, optional],
        port_mappings: Vec<PortMapping> = "5" [message, repeated],
        labels: Map = "6" [map = "string, string"],
        annotations: Map = "7" [map = "string, string"],
        linux: Option<LinuxPodSandboxConfig> = "8" [message, optional],
    }
    RunPodSandboxRequest {
        config: Option<PodSandboxConfig> = "1" [message, optional],
        runtime_handler: String = "2" [string],
    }
    PodSandboxId { pod_sandbox_id: String = "1" [string], }
    PodSandboxStatusRequest {
        pod_sandbox_id: String = "1" [string],
        verbose: bool = "2" [bool],
    }
    PodIp { ip: String = "1" [string], }
    PodSandboxNetworkStatus {
        ip: String = "1" [string],
        additional_ips: Vec<PodIp> = "2" [message, repeated],
    }
    Namespace { options: Option<NamespaceOption> = "2" [message, optional], }
    LinuxPodSandboxStatus { namespaces: Option<Namespace> = "1" [message, optional], }
    PodSandboxStatus {
        id: String = "1" [string],
        metadata: Option<PodSandboxMetadata> = "2" [message, optional],
        state: i32 = "3" [int32],
        created_at: i64 = "4" [int64],
        network: Option<PodSandboxNetworkStatus> = "5" [message, optional],
        linux: Option<LinuxPodSandboxStatus> = "6" [message, optional],
        labels: Map = "7" [map = "string, string"],
        annotations: Map = "8" [map = "string, string"],
    }
    PodSandboxStatusResponse {
        status: Option<PodSandboxStatus> = "1" [message, optional],
        info: Map = "2" [map = "string, string"],
        containers_statuses: Vec<ContainerStatus> = "3" [message, repeated],
        timestamp: i64 = "4" [int64],
    }
    StateValue { state: i32 = "1" [int32], }
    PodSandboxFilter {
        id: String = "1" [string],
        state: Option<StateValue> = "2" [message, optional],
        label_selector: Map = "3" [map = "string, string"],
    }
    ListPodSandboxRequest { filter: Option<PodSandboxFilter> = "1" [message, optional], }
    PodSandbox {
        id: String = "1" [string],
        metadata: Option<PodSandboxMetadata> = "2" [message, optional],
        state: i32 = "3" [int32],
        created_at: i64 = "4" [int64],
        labels: Map = "5" [map = "string, string"],
        annotations: Map = "6" [map = "string, string"],
    }
    ListPodSandboxResponse { items: Vec<PodSandbox> = "1" [message, repeated], }
}

// Containers.
messages! {
    ImageSpec {
        image: String = "1" [string],
        annotations: Map = "2" [map = "string, string"],
        user_specified_image: String = "18" [string],
    }
    Mount {
        container_path: String = "1" [string],
        host_path: String = "2" [string],
        readonly: bool = "3" [bool],
        propagation: i32 = "5" [int32],
        recursive_read_only: bool = "8" [bool],
        image: Option<ImageSpec> = "9" [message, optional],
        image_sub_path: String = "10" [string],
    }
    Device {
        container_path: String = "1" [string],
        host_path: String = "2" [string],
        permissions: String = "3" [string],
    }
    KeyValue {
        key: String = "1" [string],
        value: Vec<u8> = "2" [bytes = "vec"],
    }
    HugepageLimit {
        page_size: String = "1" [string],
        limit: u64 = "2" [uint64],
    }
    LinuxContainerResources {
        cpu_period: i64 = "1" [int64],
        cpu_quota: i64 = "2" [int64],
        cpu_shares: i64 = "3" [int64],
        memory_limit_in_bytes: i64 = "4" [int64],
        oom_score_adj: i64 = "5" [int64],
        cpuset_cpus: String = "6" [string],
        cpuset_mems: String = "7" [string],
        hugepage_limits: Vec<HugepageLimit> = "8" [message, repeated],
        unified: Map = "9" [map = "string, string"],
        memory_swap_limit_in_bytes: i64 = "10" [int64],
    }
    Capability {
        add_capabilities: Vec<String> = "1" [string, repeated],
        drop_capabilities: Vec<String> = "2" [string, repeated],
        add_ambient_capabilities: Vec<String> = "3" [string, repeated],
    }
    SecurityProfile {
        profile_type: i32 = "1" [int32],
        localhost_ref: String = "2" [string],
    }
    LinuxContainerSecurityContext {
        capabilities: Option<Capability> = "1" [message, optional],
        privileged: bool = "2" [bool],
        namespace_options: Option<NamespaceOption> = "3" [message, optional],
        run_as_user: Option<Int64Value> = "5" [message, optional],
        run_as_username: String = "6" [string],
        readonly_rootfs: bool = "7" [bool],
        supplemental_groups: Vec<i64> = "8" [int64, repeated],
        no_new_privs: bool = "11" [bool],
        run_as_group: Option<Int64Value> = "12" [message, optional],
        masked_paths: Vec<String> = "13" [string, repeated],
        readonly_paths: Vec<String> = "14" [string, repeated],
        seccomp: Option<SecurityProfile> = "15" [message, optional],
        supplemental_groups_policy: i32 = "17" [int32],
    }
    LinuxContainerConfig {
        resources: Option<LinuxContainerResources> = "1" [message, optional],
        security_context: Option<LinuxContainerSecurityContext> = "2" [message, optional],
    }
    ContainerMetadata {
        name: String = "1" [string],
        attempt: u32 = "2" [uint32],
    }
    ContainerConfig {
        metadata: Option<ContainerMetadata> = "1" [message, optional],
        image: Option<ImageSpec> = "2" [message, optional],
        command: Vec<String> = "3" [string, repeated],
        args: Vec<String> = "4" [string, repeated],
        working_dir: String = "5" [string],
        envs: Vec<KeyValue> = "6" [message, repeated],
        mounts: Vec<Mount> = "7" [message, repeated],
        devices: Vec<Device> = "8" [message, repeated],
        labels: Map = "9" [map = "string, string"],
        annotations: Map = "10" [map = "string, string"],
        log_path: String = "11" [string],
        stdin: bool = "12" [bool],
        stdin_once: bool = "13" [bool],
        tty: bool = "14" [bool],
        linux: Option<LinuxContainerConfig> = "15" [message, optional],
    }
    CreateContainerRequest {
        pod_sandbox_id: String = "1" [string],
        config: Option<ContainerConfig> = "2" [message, optional],
    }
    ContainerId { container_id: String = "1" [string], }
    StopContainerRequest {
        container_id: String = "1" [string],
        timeout: i64 = "2" [int64],
    }
    ContainerFilter {
        id: String = "1" [string],
        state: Option<StateValue> = "2" [message, optional],
        pod_sandbox_id: String = "3" [string],
        label_selector: Map = "4" [map = "string, string"],
    }
    ListContainersRequest { filter: Option<ContainerFilter> = "1" [message, optional], }
    Container {
        id: String = "1" [string],
        pod_sandbox_id: String = "2" [string],
        metadata: Option<ContainerMetadata> = "3" [message, optional],
        image: Option<ImageSpec> = "4" [message, optional],
        image_ref: String = "5" [string],
        state: i32 = "6" [int32],
        created_at: i64 = "7" [int64],
        labels: Map = "8" [map = "string, string"],
        annotations: Map = "9" [map = "string, string"],
        image_id: String = "10" [string],
    }
    ListContainersResponse { containers: Vec<Container> = "1" [message, repeated], }
    ContainerResources { linux: Option<LinuxContainerResources> = "1" [message, optional], }
    ContainerStatus {
        id: String = "1" [string],
        metadata: Option<ContainerMetadata> = "2" [message, optional],
        state: i32 = "3" [int32],
        created_at: i64 = "4" [int64],
        started_at: i64 = "5" [int64],
        finished_at: i64 = "6" [int64],
        exit_code: i32 = "7" [int32],
        image: Option<ImageSpec> = "8" [message, optional],
        image_ref: String = "9" [string],
        reason: String = "10" [string],
        message: String = "11" [string],
        labels: Map = "12" [map = "string, string"],
        annotations: Map = "13" [map = "string, string"],
        mounts: Vec<Mount> = "14" [message, repeated],
        log_path: String = "15" [string],
        resources: Option<ContainerResources> = "16" [message, optional],
        image_id: String = "17" [string],
    }
    ContainerStatusRequest {
        container_id: String = "1" [string],
        verbose: bool = "2" [bool],
    }
    ContainerStatusResponse {
        status: Option<ContainerStatus> = "1" [message, optional],
        info: Map = "2" [map = "string, string"],
    }
    UpdateContainerResourcesRequest {
        container_id: String = "1" [string],
        linux: Option<LinuxContainerResources> = "2" [message, optional],
    }
    ExecSyncRequest {
        container_id: String = "1" [string],
        cmd: Vec<String> = "2" [string, repeated],
        timeout: i64 = "3" [int64],
    }
    ExecSyncResponse {
        stdout: Vec<u8> = "1" [bytes = "vec"],
        stderr: Vec<u8> = "2" [bytes = "vec"],
        exit_code: i32 = "3" [int32],
    }
    ExecRequest {
        container_id: String = "1" [string],
        cmd: Vec<String> = "2" [string, repeated],
        tty: bool = "3" [bool],
        stdin: bool = "4" [bool],
        stdout: bool = "5" [bool],
        stderr: bool = "6" [bool],
    }
    AttachRequest {
        container_id: String = "1" [string],
        stdin: bool = "2" [bool],
        tty: bool = "3" [bool],
        stdout: bool = "4" [bool],
        stderr: bool = "5" [bool],
    }
    PortForwardRequest {
        pod_sandbox_id: String = "1" [string],
        port: Vec<i32> = "2" [int32, repeated],
    }
    Url { url: String = "1" [string], }
    ContainerEventResponse {
        container_id: String = "1" [string],
        container_event_type: i32 = "2" [int32],
        created_at: i64 = "3" [int64],
        pod_sandbox_status: Option<PodSandboxStatus> = "4" [message, optional],
        containers_statuses: Vec<ContainerStatus> = "5" [message, repeated],
    }
}

// Figures.
messages! {
    FilesystemIdentifier { mountpoint: String = "1" [string], }
    FilesystemUsage {
        timestamp: i64 = "1" [int64],
        fs_id: Option<FilesystemIdentifier> = "2" [message, optional],
        used_bytes: Option<UInt64Value> = "3" [message, optional],
        inodes_used: Option<UInt64Value> = "4" [message, optional],
    }
    CpuUsage {
        timestamp: i64 = "1" [int64],
        usage_core_nano_seconds: Option<UInt64Value> = "2" [message, optional],
    }
    MemoryUsage {
        timestamp: i64 = "1" [int64],
        working_set_bytes: Option<UInt64Value> = "2" [message, optional],
        available_bytes: Option<UInt64Value> = "3" [message, optional],
        usage_bytes: Option<UInt64Value> = "4" [message, optional],
        rss_bytes: Option<UInt64Value> = "5" [message, optional],
        page_faults: Option<UInt64Value> = "6" [message, optional],
        major_page_faults: Option<UInt64Value> = "7" [message, optional],
    }
    ContainerAttributes {
        id: String = "1" [string],
        metadata: Option<ContainerMetadata> = "2" [message, optional],
        labels: Map = "3" [map = "string, string"],
    }
    ContainerStats {
        attributes: Option<ContainerAttributes> = "1" [message, optional],
        cpu: Option<CpuUsage> = "2" [message, optional],
        memory: Option<MemoryUsage> = "3" [message, optional],
        writable_layer: Option<FilesystemUsage> = "4" [message, optional],
    }
    ContainerStatsResponse { stats: Option<ContainerStats> = "1" [message, optional], }
    ContainerStatsFilter {
        id: String = "1" [string],
        pod_sandbox_id: String = "2" [string],
        label_selector: Map = "3" [map = "string, string"],
    }
    ListContainerStatsRequest { filter: Option<ContainerStatsFilter> = "1" [message, optional], }
    ListContainerStatsResponse { stats: Vec<ContainerStats> = "1" [message, repeated], }
    ImageFsInfoResponse {
        image_filesystems: Vec<FilesystemUsage> = "1" [message, repeated],
        container_filesystems: Vec<FilesystemUsage> = "2" [message, repeated],
    }
}

// Images.
messages! {
    Image {
        id: String = "1" [string],
        repo_tags: Vec<String> = "2" [string, repeated],
        repo_digests: Vec<String> = "3" [string, repeated],
        size: u64 = "4" [uint64],
        uid: Option<Int64Value> = "5" [message, optional],
        username: String = "6" [string],
        pinned: bool = "8" [bool],
    }
    ImageFilter { image: Option<ImageSpec> = "1" [message, optional], }
    ListImagesRequest { filter: Option<ImageFilter> = "1" [message, optional], }
    ListImagesResponse { images: Vec<Image> = "1" [message, repeated], }
    ImageRequest { image: Option<ImageSpec> = "1" [message, optional], }
    ImageStatusResponse {
        image: Option<Image> = "1" [message, optional],
        info: Map = "2" [map = "string, string"],
    }
    AuthConfig {
        username: String = "1" [string],
        password: String = "2" [string],
        auth: String = "3" [string],
        server_address: String = "4" [string],
        identity_token: String = "5" [string],
        registry_token: String = "6" [string],
    }
    PullImageRequest {
        image: Option<ImageSpec> = "1" [message, optional],
        auth: Option<AuthConfig> = "2" [message, optional],
    }
    PullImageResponse { image_ref: String = "1" [string], }
}

// Our own additions.
messages! {
    TransferRequest {
        image: String = "1" [string],
        name: String = "2" [string],
        auth: Option<AuthConfig> = "3" [message, optional],
    }
    Transfer {
        digest: String = "1" [string],
        done: u64 = "2" [uint64],
        total: u64 = "3" [uint64],
        result: String = "4" [string],
    }
    ImportRequest { path: String = "1" [string], }
    ImportResponse { ids: Vec<String> = "1" [string, repeated], }
    ExecInput {
        start: Option<ExecRequest> = "1" [message, optional],
        stdin: Vec<u8> = "2" [bytes = "vec"],
        end: bool = "3" [bool],
        width: u32 = "4" [uint32],
        height: u32 = "5" [uint32],
    }
    ExecOutput {
        stdout: Vec<u8> = "1" [bytes = "vec"],
        stderr: Vec<u8> = "2" [bytes = "vec"],
        exit: Option<Int64Value> = "3" [message, optional],
    }
}

/// Where the services are.
pub const RUNTIME: &str = "/runtime.v1.RuntimeService/";
pub const IMAGES: &str = "/runtime.v1.ImageService/";
pub const FERRY: &str = "/ferry.v1.Ferry/";
