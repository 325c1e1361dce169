package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Checks is what only a provider can tell.
type Checks struct {
	// InstanceTypeArch returns the architecture (amd64 or arm64) of an instance
	// type, and whether the type is known at all. Nil: nothing is known.
	InstanceTypeArch func(instanceType string) (arch string, known bool)
}

// Validate reports every problem of a complete config, nil when there is none.
// It changes nothing. What Parse returned needs it only for checks that a
// provider adds.
func (s *Shard) Validate(checks Checks) Problems {
	v := &validator{shard: s, checks: checks}
	return v.validate().sorted()
}

// validator collects problems. About a field that is listed in broken, and what
// lies below it, nothing more is said.
type validator struct {
	shard    *Shard
	checks   Checks
	broken   []string
	problems Problems
}

func (v *validator) validate() Problems {
	v.cluster()
	v.server()
	v.tenants()
	v.loadBalancers()
	v.images()
	v.certificates()
	v.templates()
	v.groups()
	return v.problems
}

func (v *validator) isBroken(path string) bool {
	return slices.ContainsFunc(v.broken, func(b string) bool { return under(path, b) })
}

func (v *validator) addf(path, format string, args ...any) {
	if !v.problems.full() && !v.isBroken(path) {
		v.problems.addf(path, format, args...)
	}
}

// name checks an id such as a group's.
func (v *validator) name(path, s string) {
	if s == "" {
		v.addf(path, "required: want an id of lowercase letters, digits and single inner hyphens, at most %d characters", fleet.MaxNameLength)
	} else if err := fleet.CheckName(s); err != nil {
		v.addf(path, "%v", err)
	}
}

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

const maxLabelLength = 64

// label checks the name of something that only the config refers to.
func (v *validator) label(path, s string) {
	if len(s) > maxLabelLength || !labelPattern.MatchString(s) {
		v.addf(path, "%.80q is not a valid name: want letters, digits and inner dots, hyphens and underscores, at most %d characters",
			s, maxLabelLength)
	}
}

func (v *validator) oneOf(path, s string, options ...string) bool {
	if slices.Contains(options, s) {
		return true
	}
	want := strings.Join(options, " or ")
	if n := len(options) - 1; n > 1 {
		want = strings.Join(options[:n], ", ") + " or " + options[n]
	}
	if s == "" {
		v.addf(path, "required: want %s", want)
	} else {
		v.addf(path, "%.80q is not valid: want %s", s, want)
	}
	return false
}

func (v *validator) given(path, s, what string) bool {
	if s == "" {
		v.addf(path, "required: want %s", what)
	}
	return s != ""
}

func (v *validator) duration(path string, d Duration, least, most time.Duration) {
	between(v, path, d, Duration(least), Duration(most))
}

func between[T cmp.Ordered](v *validator, path string, got, least, most T) {
	if got < least || got > most {
		v.addf(path, "%v is outside the limits: want %v to %v", got, least, most)
	}
}

// refer checks that name is among the entries of the section.
func refer[V any](v *validator, path, what, name, section string, entries map[string]V) (V, bool) {
	entry, ok := entries[name]
	if !ok && !v.problems.full() && !v.isBroken(section) {
		v.addf(path, "no such %s %.80q %s", what, name, have(entries))
	}
	return entry, ok
}

// unique checks that no entry of a list is empty or given twice.
func (v *validator) unique(path string, list []string, what string) {
	given := make(map[string]bool, len(list))
	for i, s := range list {
		switch {
		case s == "":
			v.addf(at(path, i), "empty: want %s", what)
		case given[s]:
			v.addf(at(path, i), "%.80q is listed already", s)
		}
		given[s] = true
	}
}

func (v *validator) tenants() {
	for _, name := range sortedKeys(v.shard.Tenants) {
		path := join("tenants", name)
		if name == fleet.DefaultTenant {
			v.addf(path, "the tenant %q is always there and can't be declared: remove it", name)
			continue
		}
		v.name(path, name)
	}
}

func (v *validator) loadBalancers() {
	for _, name := range sortedKeys(v.shard.LoadBalancers) {
		path, lb := join("load_balancers", name), v.shard.LoadBalancers[name]
		v.label(path, name)
		v.oneOf(path+".provider", lb.Provider, ProviderAWS)
		arns := path + ".target_group_arns"
		if len(lb.TargetGroupARNs) == 0 {
			v.addf(arns, "required: want at least one target group")
		}
		v.unique(arns, lb.TargetGroupARNs, "the ARN of a target group")
		for i, arn := range lb.TargetGroupARNs {
			if arn != "" && !strings.HasPrefix(arn, "arn:") {
				v.addf(at(arns, i), "%.80q is no ARN: want arn:…", arn)
			}
		}
	}
}

func (v *validator) images() {
	for _, name := range sortedKeys(v.shard.Images) {
		path, image := join("images", name), v.shard.Images[name]
		v.label(path, name)
		v.oneOf(path+".provider", image.Provider, ProviderAWS)
		v.oneOf(path+".sort", image.Sort, "creation-date", "name")
		v.oneOf(path+".order", image.Order, "asc", "desc")
		v.unique(path+".owners", image.Owners, "the id of an account")
		if len(image.Filters) == 0 && image.Fallback == "" {
			v.addf(path+".filters", "required when there is no fallback: want at least one filter")
		}
		for i, filter := range image.Filters {
			v.given(at(path+".filters", i)+".name", filter.Name, "the name of an image's property")
			if len(filter.Values) == 0 {
				v.addf(at(path+".filters", i)+".values", "required: want at least one value")
			}
		}
	}
}

// text checks one template text.
func (v *validator) text(path, text string, nonce bool) {
	scope := templateScope{images: v.shard.Images, nonce: nonce}
	for _, wrong := range scope.check(text) {
		v.addf(path, "%s", wrong)
	}
}

// texts checks every string in value.
func (v *validator) texts(path string, value any) {
	switch value := value.(type) {
	case string:
		v.text(path, value, false)
	case map[string]any:
		for _, k := range sortedKeys(value) {
			v.texts(join(path, k), value[k])
		}
	case []any:
		for i := range value {
			v.texts(at(path, i), value[i])
		}
	}
}

// args checks what is rendered for the provider.
func (v *validator) args(path string, args map[string]any) {
	v.nested(path, args)
	v.texts(path, args)
}

func (v *validator) nested(path string, object map[string]any) {
	if n := nesting(object); n > maxFreeNesting {
		v.addf(path, "nested %d deep: at most %d are allowed", n, maxFreeNesting)
	}
}

// vars checks what templates are given to print.
func (v *validator) vars(path string, vars map[string]any) {
	v.nested(path, vars)
	if len(vars) > maxVars {
		v.addf(path, "%d vars: at most %d are allowed", len(vars), maxVars)
	}
	if p, message := findNull(path, vars); p != "" {
		v.addf(p, "%s", message)
	}
}

// findNull returns the path of the first null in vars, and why it is refused.
func findNull(path string, value any) (string, string) {
	switch value := value.(type) {
	case nil:
		return path, "null can't be rendered: leave the key out"
	case map[string]any:
		for _, k := range sortedKeys(value) {
			if p, message := findNull(join(path, k), value[k]); p != "" {
				return p, message
			}
		}
	case []any:
		for i := range value {
			if p, message := findNull(at(path, i), value[i]); p != "" {
				return p, message
			}
		}
	}
	return "", ""
}

func (v *validator) userdata(path string, u *fleet.Userdata) {
	if u == nil {
		return
	}
	v.oneOf(path+".source", u.Source, userdataInline)
	v.oneOf(path+".encoding", u.Encoding, encodingPlain, encodingBase64, encodingGzip)
	v.text(path+".content", u.Content, true)
}

// archFits compares an instance type's architecture with the template's.
func (c Checks) archFits(instanceType, arch string) error {
	if c.InstanceTypeArch == nil || instanceType == "" {
		return nil
	}
	if has, known := c.InstanceTypeArch(instanceType); known && has != arch {
		return fmt.Errorf("instance type %.80q is %s, but the template's arch is %s", instanceType, has, arch)
	}
	return nil
}
