package provider

import "context"

// InstanceType is what a VM of an instance type has.
type InstanceType struct {
	CPUMillis   int64 // thousandths of a CPU
	MemoryBytes int64
	Arch        string // amd64 | arm64
}

// InstanceTypes is implemented by providers that know what their instance types
// are like.
type InstanceTypes interface {
	// InstanceTypes describes instance types by their names. One that the provider
	// does not have is missing from the answer, and no error. What an instance type
	// is like never changes.
	InstanceTypes(ctx context.Context, names []string) (map[string]InstanceType, error)
}
