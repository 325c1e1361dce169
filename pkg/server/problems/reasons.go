package problems

// The reasons of problems with instances, their groups and the provider.
const (
	ReasonProvider     = "ProviderError"     // a call to the provider failed
	ReasonStorage      = "StorageError"      // a record could not be read or written
	ReasonBuild        = "InstanceInvalid"   // an instance's spec can't be rendered
	ReasonOrphans      = "UnrecordedVMs"     // VMs of this shard have no record
	ReasonAbsent       = "VMsNotFound"       // the provider does not find VMs whose agents are connected
	ReasonThrottled    = "Throttled"         // the provider throttles calls
	ReasonLoadBalancer = "LoadBalancerError" // a registration with a load balancer failed
	ReasonMalformed    = "RecordMalformed"   // an object can't be decoded as a record; each one is reported once

	ReasonDeleteRefused = "DeleteRefused" // the provider refused a deletion permanently
	ReasonDeleteStuck   = "DeleteStuck"   // the machine still exists long after its deletion began

	ReasonSubnetFull = "SubnetFull"     // no subnet of a group's pool has a free address
	ReasonQuota      = "QuotaUsedUp"    // the account's quota or the zone's capacity is used up
	ReasonSubnet     = "SubnetNotFound" // a subnet of a pool does not exist

	ReasonCreatesFailing = "CreatesFailing" // the creates of a group fail
	ReasonDied           = "MachineDied"    // a machine ended before its agent registered
)

// The reasons of failed creates beside those of problems.
const (
	ReasonNotRegistered = "NotRegistered" // the agent did not register in time
	ReasonSilent        = "AgentSilent"   // the agent stopped reporting after it registered
)
