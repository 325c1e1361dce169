package config

import (
	"maps"
	"slices"

	"github.com/nstance/nstance/pkg/fleet"
)

// ImagesOf returns the sorted names of the images that a group's args, userdata, files and
// their certificates use, in the given config. A template that computes the name of an image uses
// all of them. Images that the group's tenant may not use are left out.
func (t *Templates) ImagesOf(s *Shard, g fleet.Group) []string {
	if len(s.Images) == 0 {
		return nil
	}
	u := newUses()
	t.usesOf(g.Args, &u)
	t.usesIn(g.Userdata.Content, &u)
	for _, file := range g.Files {
		t.usesIn(file.Source, &u)
		t.usesOf(file.Content, &u)
		t.usesOf(file.Values, &u)
		if c, ok := s.Certificates[file.Template]; ok && file.Kind == fileCertificate {
			for _, text := range slices.Concat([]string{c.CN}, c.Organization, c.DNS, c.IP, c.URI) {
				t.usesIn(text, &u)
			}
		}
	}
	names, all := u.images()
	var used []string
	for _, name := range sortedKeys(s.Images) {
		if (all || names[name]) && s.Images[name].Tenants.Allow(g.Key.Tenant) {
			used = append(used, name)
		}
	}
	return used
}

// imagesIn returns the sorted names of the images that appear literally in a template. Computed
// names are known only when it is rendered.
func imagesIn(text string) []string {
	u := newUses()
	(*Templates)(nil).usesIn(text, &u)
	names, _ := u.images()
	return slices.Sorted(maps.Keys(names))
}

// images returns the names of the images among the facts, and whether any other may be used.
func (u uses) images() (names map[string]bool, all bool) {
	names = map[string]bool{}
	for f := range u.facts {
		if f.group == "Image" && f.name != "" {
			names[f.name] = true
		}
	}
	return names, u.all || u.facts[fact{group: "Image"}]
}
