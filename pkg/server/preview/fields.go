package preview

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
)

// fields returns the fields of a group that differ, sorted.
func (p pair) fields() (names []string) {
	was, is := p.was, p.is
	for name, differs := range map[string]bool{
		"template":       was.Template != is.Template,
		"kind":           was.Kind != is.Kind,
		"arch":           was.Arch != is.Arch,
		"size":           was.Size != is.Size,
		"instance_type":  was.InstanceType != is.InstanceType,
		"subnet_pool":    was.SubnetPool != is.SubnetPool,
		"subnets":        !slices.Equal(was.Subnets, is.Subnets),
		"args":           !same(was.Args, is.Args),
		"vars":           !same(was.Vars, is.Vars),
		"userdata":       was.Userdata != is.Userdata,
		"files":          !same(was.Files, is.Files),
		"require_files":  was.FilesOptional != is.FilesOptional,
		"load_balancers": !slices.Equal(was.LoadBalancers, is.LoadBalancers),
		"drain_timeout":  was.DrainTimeout != is.DrainTimeout,
		"rotation":       was.MaxSurge != is.MaxSurge,
		"on_demand":      !was.OnDemand.Equal(is.OnDemand),
	} {
		if differs {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// same compares maps; one that is empty equals one that is nil.
func same[V any](a, b map[string]V) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// files returns the files that are pushed to running instances, and those that the group no
// longer has, sorted.
func (in Input) files(p pair) (pushed, dropped []string) {
	vars := !same(p.was.Vars, p.is.Vars)
	for _, name := range slices.Sorted(maps.Keys(p.is.Files)) {
		old, was := p.was.Files[name]
		content := made(in.To, p.is.Files[name])
		if !was || !reflect.DeepEqual(content, made(in.From, old)) || vars && content.readsVars() {
			pushed = append(pushed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.was.Files)) {
		if _, is := p.is.Files[name]; !is {
			dropped = append(dropped, name)
		}
	}
	return pushed, dropped
}

// content is what a file is made of, except for the facts of the instance.
type content struct {
	File        fleet.File
	Certificate config.Certificate
}

func made(s *config.Shard, f fleet.File) content {
	c := content{File: f}
	if f.Kind == fileCertificate {
		c.Certificate = s.Certificates[f.Template]
		c.Certificate.Tenants = nil // not part of the content
	}
	return c
}

const fileCertificate = "certificate"

// varsPattern matches a template that uses vars, or all facts at once.
var varsPattern = regexp.MustCompile(`\{\{.*(\.Vars\b|[\s({|]\.[\s)}|]|\$[\s)}|])`)

// readsVars reports whether a template of the file may use vars.
func (c content) readsVars() bool {
	text, err := json.Marshal(c)
	return err != nil || varsPattern.Match(text)
}
