package fleet

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// AnyNamespace in OnDemand.Namespaces allows all Namespaces.
const AnyNamespace = "*"

// Limits of an OnDemand.
const (
	MaxOnDemand        = 10_000 // instances
	MaxOnDemandEntries = 100    // of each list and of the labels
)

// OnDemand says which Kubernetes pods get instances of a group, and limits the group's
// on-demand instances on its shard, including those that are for no pod. Pods get no
// instances of a group without it. It is immutable.
type OnDemand struct {
	// Namespaces are the names of the Namespaces whose pods get instances.
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceLabels allow Namespaces that have all of these labels, in addition to
	// Namespaces.
	NamespaceLabels map[string]string `json:"namespace_labels,omitempty"`
	// InstanceTypes are the types that a request may name besides the group's own.
	InstanceTypes []string `json:"instance_types,omitempty"`
	// Max is the maximum number of on-demand instances of the group.
	Max int `json:"max"`
	// MaxPerNamespace is the maximum for pods of one Namespace; 0 means Max.
	MaxPerNamespace int `json:"max_per_namespace,omitempty"`
}

// IsZero reports whether o is nil or empty. An empty value in an update clears the setting.
func (o *OnDemand) IsZero() bool {
	return o == nil || len(o.Namespaces) == 0 && len(o.NamespaceLabels) == 0 && len(o.InstanceTypes) == 0 &&
		o.Max == 0 && o.MaxPerNamespace == 0
}

// Equal reports whether o and p are the same; nil equals an empty value.
func (o *OnDemand) Equal(p *OnDemand) bool {
	if o.IsZero() || p.IsZero() {
		return o.IsZero() == p.IsZero()
	}
	return slices.Equal(o.Namespaces, p.Namespaces) && maps.Equal(o.NamespaceLabels, p.NamespaceLabels) &&
		slices.Equal(o.InstanceTypes, p.InstanceTypes) && o.Max == p.Max && o.MaxPerNamespace == p.MaxPerNamespace
}

// Clone returns a deep copy of o; nil for nil.
func (o *OnDemand) Clone() *OnDemand {
	if o == nil {
		return nil
	}
	c := *o
	c.Namespaces, c.InstanceTypes = slices.Clone(o.Namespaces), slices.Clone(o.InstanceTypes)
	c.NamespaceLabels = maps.Clone(o.NamespaceLabels)
	return &c
}

// AllowsNamespace reports whether pods of a Namespace with these labels get instances.
func (o *OnDemand) AllowsNamespace(name string, labels map[string]string) bool {
	if o == nil || name == "" {
		return false
	}
	if slices.Contains(o.Namespaces, AnyNamespace) || slices.Contains(o.Namespaces, name) {
		return true
	}
	for key, want := range o.NamespaceLabels {
		if value, ok := labels[key]; !ok || value != want {
			return false
		}
	}
	return len(o.NamespaceLabels) > 0
}

// AllowsType reports whether a request may name the instance type asked; own is the group's
// type. An empty asked means own.
func (o *OnDemand) AllowsType(asked, own string) bool {
	return asked == "" || asked == own || o != nil && slices.Contains(o.InstanceTypes, asked)
}

// PerNamespace returns the maximum number of instances for pods of one Namespace.
func (o *OnDemand) PerNamespace() int {
	if o.MaxPerNamespace == 0 {
		return o.Max
	}
	return o.MaxPerNamespace
}

var (
	namespacePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	labelKeyPattern  = regexp.MustCompile(
		`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	labelValuePattern = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$`)
)

// The maximum lengths of names in Kubernetes.
const (
	maxLabelPart = 63
	maxLabelKey  = 253 + 1 + maxLabelPart
)

// CheckNamespace returns an error if s is not a valid Namespace name.
func CheckNamespace(s string) error {
	if len(s) > maxLabelPart || !namespacePattern.MatchString(s) {
		return fmt.Errorf("%.80q is not a Namespace name: want lowercase letters, digits and inner hyphens, at most %d characters",
			s, maxLabelPart)
	}
	return nil
}

// Check calls report for each invalid field of o, with the field's path relative to o.
func (o *OnDemand) Check(report func(path, message string)) {
	tell := func(path, format string, args ...any) { report(path, fmt.Sprintf(format, args...)) }
	if o.Max < 1 || o.Max > MaxOnDemand {
		tell("max", "%d: want the maximum number of on-demand instances of the group, 1 to %d", o.Max, MaxOnDemand)
	}
	if o.MaxPerNamespace < 0 || o.MaxPerNamespace > max(o.Max, 1) {
		tell("max_per_namespace", "%d: want the maximum number of instances per Namespace, 1 to max (%d); if unset, max applies",
			o.MaxPerNamespace, o.Max)
	}
	if len(o.Namespaces) == 0 && len(o.NamespaceLabels) == 0 {
		tell("namespaces", `required, unless namespace_labels is given: want the names of Namespaces, or "*" for all`)
	}
	o.checkNamespaces(tell)
	o.checkTypes(tell)
}

func (o *OnDemand) checkNamespaces(tell func(path, format string, args ...any)) {
	bounded(tell, "namespaces", len(o.Namespaces))
	for i, name := range o.Namespaces {
		path := fmt.Sprintf("namespaces[%d]", i)
		if err := CheckNamespace(name); err != nil && name != AnyNamespace {
			tell(path, `%v, or "*" for all`, err)
		} else if slices.Contains(o.Namespaces[:i], name) {
			tell(path, "%q is listed already", name)
		}
	}
	bounded(tell, "namespace_labels", len(o.NamespaceLabels))
	for _, key := range slices.Sorted(maps.Keys(o.NamespaceLabels)) {
		value := o.NamespaceLabels[key]
		if len(key) > maxLabelKey || !labelKeyPattern.MatchString(key) {
			tell("namespace_labels", "%.80q is not a valid label key: want one such as team or example.com/team", key)
		} else if len(value) > maxLabelPart || !labelValuePattern.MatchString(value) {
			tell("namespace_labels", "%.80q is not a valid value of label %s: want letters, digits and inner dots, hyphens and underscores, "+
				"at most %d characters", value, key, maxLabelPart)
		}
	}
}

func (o *OnDemand) checkTypes(tell func(path, format string, args ...any)) {
	bounded(tell, "instance_types", len(o.InstanceTypes))
	for i, name := range o.InstanceTypes {
		path := fmt.Sprintf("instance_types[%d]", i)
		switch err := CheckInstanceType(name); {
		case name == "":
			tell(path, "empty: want an instance type")
		case err != nil:
			tell(path, "%v", err)
		case slices.Contains(o.InstanceTypes[:i], name):
			tell(path, "%q is listed already", name)
		}
	}
}

func bounded(tell func(path, format string, args ...any), path string, n int) {
	if n > MaxOnDemandEntries {
		tell(path, "%d entries: at most %d are allowed", n, MaxOnDemandEntries)
	}
}
