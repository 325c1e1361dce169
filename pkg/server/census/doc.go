// Package census matches a provider's VMs with the ledger's records and evaluates what is
// missing on either side: whether a VM that a Get does not find is gone, what it means when
// many VMs are absent at once, and which VMs without a record are deleted. Its decisions
// depend only on the arguments, including the time, and have no side effects.
package census
