// Package ondemand creates an instance for each pod that requests one.
//
// A pod requests it by an annotation, and gets nothing unless its group allows that: by the
// policy that the shards report for the group (places.go), and within limits that count
// existing and requested instances (slots.go). If operators of several tenants share a
// cluster, one of them serves a pod: that of the tenant in the label of the pod's Namespace
// (allow.go). A pod that is not to be scheduled yet gets nothing.
//
// A pod gets a NstanceMachine and a Machine, both of one name that follows from the pod alone:
// after a crash the existing objects are found, and the rest is created. The NstanceMachine
// comes first, so that Cluster API finds it when it sees the Machine; until there is a
// Machine, no instance is requested from a shard.
//
// They stay as long as the pod needs them (look.go). The label of the Machine says which pod has
// it, and may change: a machine on which a pod runs that has another one is handed over to it,
// and the other one is taken back (reclaim.go), by what the API server says is on each
// (hosts.go). A pod with the operator's gate is bound to its machine (bind.go).
//
// Only the metadata of pods is cached; a pod with a request is read in full before anything is
// created for it, and when it has changed.
//
// Beside that, Health tells pods why their machines are missing, and replaces machines whose
// nodes don't start or are lost (nodes.go).
package ondemand
