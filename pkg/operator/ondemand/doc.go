// Package ondemand makes an instance for each pod that asks for one.
//
// A pod asks by an annotation. It gets a NstanceMachine and a Machine, both of one name
// that follows from the pod alone: whoever comes to it after a crash finds what is there
// and makes the rest. The NstanceMachine comes first, so that Cluster API finds it when
// it sees the Machine; until there is a Machine, nothing is asked of a shard.
//
// They stay as long as the pod does, also while it terminates, and whatever becomes of
// its annotation. Of pods in general only the metadata are kept; a pod that asks is read
// whole once, before anything is made for it.
package ondemand
