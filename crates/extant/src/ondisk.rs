//! What of the disk's own structures the API shows: the superblock, the geometry and the features.

pub use extant_ondisk::{
    Cluster, CompatFeatures, Error, Geometry, GroupDescriptor, IncompatFeatures, LogicalCluster, Result,
    RoCompatFeatures, State, SuperFlags, Superblock, TransactionId,
};
