package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/nstance/nstance/pkg/fleet"
)

// Checks are checks that only a provider can do.
type Checks struct {
	// InstanceTypeArch returns the architecture (amd64 or arm64) of an instance type, and
	// whether the type is known. Nil: none is known.
	InstanceTypeArch func(instanceType string) (arch string, known bool)
	// Machine returns what the provider would refuse of a group's instances, given their args and
	// userdata as rendered for a sample instance, whose userdata is as long as that of any. Paths
	// begin with args, instance_type or userdata. Nil: no checks. It is pure.
	Machine func(g fleet.Group, args map[string]any, userdata []byte) Problems
	// Server returns what the provider does not support in the server part, mainly its own
	// options; paths are those of the config. Nil: no checks. It is pure.
	Server func(s Server) Problems
}

// AnyProvider returns the checks of new configs that need no provider: those of rendered userdata.
func AnyProvider() Checks {
	return Checks{Machine: func(fleet.Group, map[string]any, []byte) Problems { return nil }}
}

// Validate returns every problem of a complete config; nil if there is none. It changes
// nothing. A config returned by Parse needs it only for a provider's checks.
func (s *Shard) Validate(checks Checks) Problems {
	v := &validator{shard: s, checks: checks}
	return v.validate().sorted()
}

// validator checks a shard's config.
type validator struct {
	findings
	shard  *Shard
	checks Checks
	users  Tenants // the tenants that may use what is being checked
	toOwn  bool    // messages are for the tenant in users
	judged judgements
	// excused is set for a text that was accepted before.
	excused *excuses
}

func (v *validator) validate() Problems {
	v.cluster()
	v.server()
	v.tenants()
	v.loadBalancers()
	v.images()
	v.certificates()
	accessOf(v).sections()
	v.templates()
	v.groups()
	checkRemoved(&v.findings, v.shard)
	v.providerArgs()
	return v.problems
}

func (v *validator) tenants() {
	for _, name := range sortedKeys(v.shard.Tenants) {
		path, tenant := join("tenants", name), v.shard.Tenants[name]
		v.name(path, name)
		accessOf(v).quota(path+".quota", name, &tenant.Quota)
	}
}

func (v *validator) loadBalancers() {
	for _, name := range sortedKeys(v.shard.LoadBalancers) {
		path, lb := join("load_balancers", name), v.shard.LoadBalancers[name]
		v.label(path, name)
		accessOf(v).who(path+".tenants", lb.Tenants)
		v.oneOf(path+".provider", lb.Provider, ProviderAWS)
		arns := path + ".target_group_arns"
		if len(lb.TargetGroupARNs) == 0 {
			v.addf(arns, "required: want at least one target group")
		}
		v.unique(arns, lb.TargetGroupARNs, "the ARN of a target group")
		for i, arn := range lb.TargetGroupARNs {
			if arn != "" && !strings.HasPrefix(arn, "arn:") {
				v.addf(at(arns, i), "%.80q is not an ARN: want arn:…", arn)
			}
		}
	}
}

func (v *validator) images() {
	for _, name := range sortedKeys(v.shard.Images) {
		path, image := join("images", name), v.shard.Images[name]
		v.label(path, name)
		accessOf(v).who(path+".tenants", image.Tenants)
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

// text checks one template.
func (v *validator) text(path, text string, nonce bool) {
	named := imagesIn(text)
	scope := templateScope{images: v.shard.Images, nonce: nonce}
	if v.toOwn { // the names of others' images are not shown
		scope.images = maps.Clone(scope.images)
		maps.DeleteFunc(scope.images, func(name string, i Image) bool { return !slices.Contains(named, name) && !v.users.all(i.Tenants.Allow) })
	}
	for _, wrong := range scope.check(text) {
		v.addf(path, "%s", wrong)
	}
	for _, name := range named {
		if image, ok := v.shard.Images[name]; ok {
			accessOf(v).reach(path, "image", name, join("images", name), image.Tenants, v.users)
		}
	}
}

// texts checks every string in value.
func (v *validator) texts(path string, value any) {
	for at, leaf := range leaves(path, value) {
		if text, ok := leaf.(string); ok {
			v.text(at, text, false)
		}
	}
}

// args checks a provider's args.
func (v *validator) args(path string, args map[string]any) {
	v.nested(path, args)
	v.texts(path, args)
}

func (v *validator) nested(path string, object map[string]any) {
	if n := nesting(object); n > maxFreeNesting {
		v.addf(path, "nested %d deep: at most %d are allowed", n, maxFreeNesting)
	}
}

// vars checks the vars of templates.
func (v *validator) vars(path string, vars map[string]any) {
	v.nested(path, vars)
	if len(vars) > maxVars {
		v.addf(path, "%d vars: at most %d are allowed", len(vars), maxVars)
	}
	checkPrintable(v, path, vars)
	for at, leaf := range leaves(path, vars) {
		if leaf == nil {
			v.addf(at, "null can't be rendered: leave the key out")
			return
		}
	}
}

// checkPrintable checks that the names in value, at any depth, can be shown as they are.
func checkPrintable(v *validator, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(value) {
			if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				v.addf(path, "%.80q is not a name of vars: want printable characters alone", name)
				return
			}
			checkPrintable(v, join(path, name), value[name])
		}
	case []any:
		for i := range value {
			checkPrintable(v, at(path, i), value[i])
		}
	}
}

// checkInstanceType checks an instance type, if one is given.
func checkInstanceType(v *validator, path, name string) {
	if name == "" {
		return
	}
	if err := fleet.CheckInstanceType(name); err != nil {
		v.addf(path, "%v", err)
	}
}

func (v *validator) userdata(path string, u *fleet.Userdata) {
	if u == nil {
		return
	}
	v.oneOf(path+".source", u.Source, userdataInline)
	v.oneOf(path+".encoding", u.Encoding, encodingPlain, encodingGzip)
	v.text(path+".content", u.Content, true)
}

// archFits checks that an instance type has the template's architecture.
func (c Checks) archFits(instanceType, arch string) error {
	if c.InstanceTypeArch == nil || instanceType == "" {
		return nil
	}
	if has, known := c.InstanceTypeArch(instanceType); known && has != arch {
		return fmt.Errorf("instance type %.80q is %s, but the template's arch is %s", instanceType, has, arch)
	}
	return nil
}
