package config

import (
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
)

// This file handles dynamic groups whose tenant may no longer use their template. Their machines
// keep the last version that the tenant could use; later versions belong to other tenants.

// Kept is the last version of a template, with its defaults, that a group's tenant could use, as
// far as it concerns running machines.
type Kept struct {
	Kind  string                `json:"kind"`
	Arch  string                `json:"arch"`
	Vars  map[string]any        `json:"vars,omitempty"`
	Files map[string]fleet.File `json:"files,omitempty"`

	FilesOptional bool `json:"files_optional,omitempty"`
}

// keptOf returns what to keep of an entry's template; nil if the tenant may use it.
func (e Entry) keptOf(tenant string, next *Shard, before []*Shard) *Kept {
	if next.mayUse(tenant, *e.Template) {
		return nil
	}
	for n, past := range before {
		if n > 0 && e.Kept != nil {
			break // what is kept is as recent
		}
		if past.mayUse(tenant, *e.Template) {
			t := past.Templates[*e.Template]
			return &Kept{
				Kind: t.Kind, Arch: t.Arch, Vars: Merge(past.defaultsFor(tenant).Vars, t.Vars), Files: copyFiles(t.Files),
				FilesOptional: t.filesOptional(),
			}
		}
	}
	return e.Kept
}

// keepOnly drops what is kept if the template changes.
func (e *Entry) keepOnly(template *string) {
	if template != nil && *template != value(e.Template) {
		e.Kept = nil
	}
}

// check reports values that no config can have.
func (k *Kept) check(v *validator) {
	if k == nil {
		return
	}
	v.vars("kept.vars", k.Vars)
	if len(k.Files) > maxFiles {
		v.addf("kept.files", "%d files: at most %d are allowed", len(k.Files), maxFiles)
	}
	for _, name := range sortedKeys(k.Files) {
		f, path := k.Files[name], join("kept.files", name)
		if err := files.CheckName(name); err != nil {
			v.addf(path, "%s", err)
		}
		v.oneOf(path+".kind", f.Kind, fileCertificate, fileSecret, fileStorage, fileEnv, fileJSON, fileString)
		switch f.Kind {
		case fileSecret:
			v.secretName(path+".source", f.Source)
		case fileStorage:
			v.storedFile(path+".source", f.Source)
		case fileCertificate:
			v.fileKey(path+".key", f.Key)
		}
	}
}

// furnish determines the files of a dynamic group's instances, and returns what happens to its
// machines while the group is disabled. sound reports whether the definition is valid apart from
// what it may use. g keeps nothing of a template that its tenant may not use.
func (s *Shard) furnish(g *fleet.Group, e Entry, sound bool) (becomes string) {
	if s.mayUse(g.Key.Tenant, g.Template) {
		if g.FilesHeld = !sound; sound {
			return filesGoOn
		}
		return filesStay
	}
	kept := e.Kept
	if g.FilesHeld = kept == nil || len(e.unreadable) > 0; g.FilesHeld {
		kept = &Kept{Kind: g.Kind, Arch: g.Arch}
	}
	infra := g.Hashes.Infra
	g.Kind, g.Arch, g.Args, g.Userdata = kept.Kind, kept.Arch, Merge(e.Args), fleet.Userdata{}
	g.Vars, g.Files, g.FilesOptional = Merge(kept.Vars, e.Vars), copyFiles(kept.Files), kept.FilesOptional
	hashes, err := s.Hashes(*g)
	g.Hashes, g.FilesHeld = fleet.Hashes{Infra: infra, Runtime: hashes.Runtime}, g.FilesHeld || err != nil
	if g.FilesHeld {
		return filesStay
	}
	return filesAsKept
}

// leftFiles reports the files of a disabled group that its tenant may no longer use.
func leftFiles(s *Shard, g fleet.Group) (problems Problems) {
	if g.FilesHeld {
		return nil
	}
	for _, name := range sortedKeys(g.Files) {
		if err := s.CheckFile(g.Key.Tenant, g.Files[name]); err != nil {
			problems.addf("", "file %s stays unchanged on the machines: %v", name, err)
		}
	}
	return problems
}
