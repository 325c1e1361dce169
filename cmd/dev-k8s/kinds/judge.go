package kinds

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/json"
)

// Kinds validates the files of one root.
type Kinds struct {
	*Folders
	builtin *builtin
	decoder runtime.Decoder
	schemas schemas
}

// Open reads the folders' claims of a root. definition returns the text of a stored
// CustomResourceDefinition, and a number that changes with it.
func Open(root string, definition func(name string) ([]byte, int64)) (*Kinds, error) {
	b, err := newBuiltin()
	if err != nil {
		return nil, err
	}
	folders, err := openFolders(root, b)
	if err != nil {
		return nil, err
	}
	strict := serializer.NewCodecFactory(b.scheme, serializer.EnableStrict).UniversalDeserializer()
	return &Kinds{Folders: folders, builtin: b, decoder: strict, schemas: schemas{definition: definition}}, nil
}

// Judge returns the object of a file's text. It fails if the text is not JSON, is invalid for
// its kind, or contradicts the file's path.
func (k *Kinds) Judge(file string, text []byte) (ID, map[string]any, error) {
	var object map[string]any
	// Strictly: reject duplicate fields.
	twice, err := json.UnmarshalStrict(text, &object)
	if err = errors.Join(append(twice, err)...); err != nil {
		return ID{}, nil, fmt.Errorf("not JSON: %w", err)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		return ID{}, nil, errors.New("no metadata")
	}
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if version == "" || kind == "" {
		return ID{}, nil, errors.New("no apiVersion or no kind")
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return ID{}, nil, err
	}
	id, err := k.place(file, gv.Group, metadata)
	if err != nil {
		return ID{}, nil, err
	}
	if err := k.check(id, gv.WithKind(kind), object); err != nil {
		return ID{}, nil, err
	}
	want, err := k.Path(id)
	if err == nil && want != file {
		err = fmt.Errorf("this object belongs in %s", want)
	}
	return id, object, err
}

// place parses the path and compares it with the metadata; names missing there are taken from
// the path.
func (k *Kinds) place(file, group string, metadata map[string]any) (ID, error) {
	parts := strings.Split(strings.TrimSuffix(file, ".json"), "/")
	if len(parts) < 2 || len(parts) > 3 {
		return ID{}, errors.New("not in {resource}/{name}.json or {resource}/{namespace}/{name}.json")
	}
	var id ID
	id.Group, id.Resource = k.owner(parts[0], group)
	if len(parts) == 3 {
		id.Namespace, _ = unescape(parts[1])
	}
	saidName, _ := metadata["name"].(string)
	saidSpace, _ := metadata["namespace"].(string)
	name, whole := unescape(parts[len(parts)-1])
	if !whole {
		name = saidName
	}
	id.Name = name
	if saidName != "" && saidName != name {
		return ID{}, fmt.Errorf("metadata.name is %q, but the file's name is for %q", saidName, name)
	}
	if saidSpace != "" && saidSpace != id.Namespace {
		return ID{}, fmt.Errorf("metadata.namespace is %q, but the path is for %q", saidSpace, id.Namespace)
	}
	if name == "" || strings.Contains(name, "/") {
		return ID{}, fmt.Errorf("%q is not a valid name", name)
	}
	if id.Group != "" && id.Group != group {
		return ID{}, fmt.Errorf("apiVersion has the group %q, but the folder is for %q", group, id.Group)
	}
	return id, nil
}

// check validates an object against its kind, and the file's path against the kind's scope.
func (k *Kinds) check(id ID, gvk schema.GroupVersionKind, object map[string]any) error {
	wide, err := k.checkKind(id, gvk, object)
	if err != nil {
		return err
	}
	if wide && id.Namespace != "" {
		return fmt.Errorf("%s are cluster-scoped: the file belongs in %s.json", id.Resource, path.Join(id.Resource, escape(id.Name)))
	}
	if !wide && id.Namespace == "" {
		return fmt.Errorf("%s are namespaced: the file belongs in %s/{namespace}/%s.json", id.Resource, id.Resource, escape(id.Name))
	}
	return nil
}
