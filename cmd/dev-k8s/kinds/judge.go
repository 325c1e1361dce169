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

// Kinds judges the files of one root.
type Kinds struct {
	*Folders
	builtin *builtin
	decoder runtime.Decoder
	schemas schemas
}

// Open reads what is known of the folders of a root. Definition returns the text of
// a CustomResourceDefinition that is stored, and a number that changes with it.
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

// Judge says which object the text of a file is. An error says what in it is not
// JSON, is not of its kind, or contradicts the file's path.
func (k *Kinds) Judge(file string, text []byte) (ID, map[string]any, error) {
	var object map[string]any
	// Strictly: of two fields with one name only one would be taken.
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
		err = fmt.Errorf("the place of this object is %s", want)
	}
	return id, object, err
}

// place reads the path, and holds the metadata against it: what they leave out is
// taken from the path.
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
		return ID{}, fmt.Errorf("metadata.name is %q, the file's name says %q", saidName, name)
	}
	if saidSpace != "" && saidSpace != id.Namespace {
		return ID{}, fmt.Errorf("metadata.namespace is %q, the path says %q", saidSpace, id.Namespace)
	}
	if name == "" || strings.Contains(name, "/") {
		return ID{}, fmt.Errorf("%q is no name", name)
	}
	if id.Group != "" && id.Group != group {
		return ID{}, fmt.Errorf("apiVersion is of the group %q, the folder is of %q", group, id.Group)
	}
	return id, nil
}

// check holds an object against its kind, and its file's place against its name.
func (k *Kinds) check(id ID, gvk schema.GroupVersionKind, object map[string]any) error {
	wide, err := k.checkKind(id, gvk, object)
	if err != nil {
		return err
	}
	if wide && id.Namespace != "" {
		return fmt.Errorf("%s are in no namespace: the place is %s.json", id.Resource, path.Join(id.Resource, escape(id.Name)))
	}
	if !wide && id.Namespace == "" {
		return fmt.Errorf("%s are in a namespace: the place is %s/{namespace}/%s.json", id.Resource, id.Resource, escape(id.Name))
	}
	return nil
}
