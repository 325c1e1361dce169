// Package kinds knows Kubernetes' objects as they lie in storage: which key in etcd
// is which object, which file it is in, and whether the text of a file is an object
// of the kind that its place says.
//
// A key is /registry/{resource}/{namespace}/{name}, with the group before the
// resource where a CustomResourceDefinition brought it, and without the namespace
// where the resource has none. A file is {resource}/{namespace}/{name}.json.
package kinds

import (
	"path"
	"strings"
)

// Prefix begins the keys of all objects.
const Prefix = "/registry/"

// ID names an object. The group is empty where the key has none: that is so for all
// resources that are built in, whatever group they are in.
type ID struct{ Group, Resource, Namespace, Name string }

// odd are the built-in resources whose keys don't begin with their names, as
// kube-apiserver has them (SpecialDefaultResourcePrefixes).
func odd() map[string]string {
	return map[string]string{
		"controllers": "replicationcontrollers", "services/endpoints": "endpoints", "minions": "nodes",
		"services/specs": "services", "ingress": "ingresses",
	}
}

// internal are kube-apiserver's own notes: no objects that somebody would edit.
func internal(resource string) bool {
	return resource == "ranges" || resource == "masterleases" || resource == "peerserverleases"
}

// Parse reads a key. It returns false for those that are of no object.
func Parse(key string) (ID, bool) {
	rest, ok := strings.CutPrefix(key, Prefix)
	if !ok {
		return ID{}, false
	}
	var id ID
	for from, resource := range odd() {
		if after, found := strings.CutPrefix(rest, from+"/"); found {
			id.Resource, rest = resource, after
			break
		}
	}
	if id.Resource == "" {
		id.Resource, rest, _ = strings.Cut(rest, "/")
	}
	// A group that somebody defines has a dot in it, a resource never.
	if strings.Contains(id.Resource, ".") {
		id.Group = id.Resource
		id.Resource, rest, _ = strings.Cut(rest, "/")
	}
	id.Name = rest
	if ns, name, found := strings.Cut(rest, "/"); found {
		id.Namespace, id.Name = ns, name
		if ns == "" {
			return ID{}, false
		}
	}
	if id.Resource == "" || id.Name == "" || strings.Contains(id.Name, "/") || internal(id.Resource) {
		return ID{}, false
	}
	return id, true
}

// Key is the inverse of Parse.
func (id ID) Key() string {
	resource := id.Resource
	if id.Group == "" {
		for from, to := range odd() {
			if to == resource {
				resource = from
			}
		}
	}
	return Prefix + path.Join(id.Group, resource, id.Namespace, id.Name)
}

// String is for people.
func (id ID) String() string { return path.Join(id.Resource, id.Namespace, id.Name) }
