// Package kinds knows how Kubernetes stores objects: it maps etcd keys to objects and files,
// and validates the text of a file against the kind of its path.
//
// A key is /registry/{resource}/{namespace}/{name}, with the group before the resource if that
// comes from a CustomResourceDefinition, and without the namespace if the resource is
// cluster-scoped. A file is {resource}/{namespace}/{name}.json.
package kinds

import (
	"path"
	"strings"
)

// Prefix is the prefix of the keys of all objects.
const Prefix = "/registry/"

// ID names an object. Group is empty for all built-in resources, as in their keys.
type ID struct{ Group, Resource, Namespace, Name string }

// odd are the built-in resources whose keys don't begin with their names, as in kube-apiserver
// (SpecialDefaultResourcePrefixes).
func odd() map[string]string {
	return map[string]string{
		"controllers": "replicationcontrollers", "services/endpoints": "endpoints", "minions": "nodes",
		"services/specs": "services", "ingress": "ingresses",
	}
}

// internal reports whether a resource is kube-apiserver's internal data, not objects to edit.
func internal(resource string) bool {
	return resource == "ranges" || resource == "masterleases" || resource == "peerserverleases"
}

// Parse parses a key. It returns false if the key is not an object's.
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
	// A custom group contains a dot, a resource never.
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

// String formats the ID for messages.
func (id ID) String() string { return path.Join(id.Resource, id.Namespace, id.Name) }
