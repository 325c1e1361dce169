package kinds

import (
	"errors"
	"maps"
	"reflect"
	"time"
)

// ErrOtherUID means that a file would replace a served object by another one.
var ErrOtherUID = errors.New("metadata.uid differs from the served object's: remove the file first")

// Complete adds what an API server would set: UID and creation time of a new object, the
// generation of a changed one, and names that the file leaves to its path. It reports whether
// it changed the object. before is nil for a new object.
func Complete(id ID, object, before map[string]any, now time.Time, uid func() string) (changed bool, err error) {
	metadata := object["metadata"].(map[string]any)
	kept := maps.Clone(metadata)
	// resourceVersion is the revision, which the storage sets.
	delete(metadata, "resourceVersion")
	metadata["name"] = id.Name
	if id.Namespace != "" {
		metadata["namespace"] = id.Namespace
	}
	was := map[string]any{}
	if before != nil {
		was, _ = before["metadata"].(map[string]any)
	}
	inherit(metadata, was, "uid", func() any { return uid() })
	inherit(metadata, was, "creationTimestamp", func() any { return now.UTC().Format(time.RFC3339) })
	if old := was["uid"]; old != nil && old != metadata["uid"] {
		return false, ErrOtherUID
	}
	_, specified := object["spec"]
	switch {
	case before == nil && specified:
		inherit(metadata, was, "generation", func() any { return int64(1) })
	case was["generation"] != nil && wanted(object, before):
		if g, ok := was["generation"].(int64); ok && (metadata["generation"] == nil || metadata["generation"] == g) {
			metadata["generation"] = g + 1
		}
	case was["generation"] != nil && metadata["generation"] == nil:
		metadata["generation"] = was["generation"]
	}
	return !reflect.DeepEqual(kept, metadata), nil
}

func inherit(metadata, was map[string]any, field string, fresh func() any) {
	if metadata[field] != nil && metadata[field] != "" {
		return
	}
	if metadata[field] = was[field]; metadata[field] == nil {
		metadata[field] = fresh()
	}
}

// wanted reports whether anything but metadata and status has changed.
func wanted(object, before map[string]any) bool {
	a, b := maps.Clone(object), maps.Clone(before)
	for _, field := range []string{"metadata", "status"} {
		delete(a, field)
		delete(b, field)
	}
	return !reflect.DeepEqual(a, b)
}
