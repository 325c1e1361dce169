package iam_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/minio/minio-go/v7"

	"github.com/nstance/nstance/pkg/awsclient/iam"
)

const root = "../../.."

// client is what calls one service.
type client struct {
	prefix string // of its actions
	kind   reflect.Type
	names  map[string]string // actions that are not called as the methods are
}

// clients are those of all services that are called, by what is imported for it.
func clients() map[string]client {
	return map[string]client{
		"github.com/aws/aws-sdk-go-v2/service/ec2": {prefix: "ec2", kind: reflect.TypeFor[*ec2.Client]()},
		"github.com/minio/minio-go/v7": {prefix: "s3", kind: reflect.TypeFor[*minio.Client](), names: map[string]string{
			"RemoveObject": "DeleteObject", "ListObjectsV2": "ListBucket",
		}},
	}
}

// verb is how the actions begin that are called by their names, with awscall.
var verb = regexp.MustCompile(`^"((?:Add|Attach|Batch|Cancel|Change|Complete|Create|Delete|Deregister|Describe|Detach|Disable|Enable|` +
	`Enter|Execute|Exit|Get|Label|List|Modify|Put|Record|Register|Remove|Replicate|Restore|Resume|Rotate|Send|Set|Start|Stop|Suspend|` +
	`Tag|Terminate|Untag|Update|Validate)[A-Z][A-Za-z]+)"$`)

// noAction is what begins like one: codes of refusals, and a field of a launch.
var noAction = regexp.MustCompile(`(Exceeded|Exception|NotFound|Exists|Violation)$|^DisableApiTermination$`)

// byName are the services that a folder calls with awscall.
func byName(path string) []string {
	switch filepath.Base(filepath.Dir(path)) {
	case "asg":
		return []string{"autoscaling"}
	case "aws":
		if strings.Contains(path, "secrets") {
			return []string{"secretsmanager", "ssm"}
		}
		return []string{"elasticloadbalancing"}
	default:
		return nil
	}
}

// named returns the actions whose names stand in a file, of a folder that imports awscall.
// One that several services of the folder could have is taken for the one that has a row.
func named(t *testing.T, path string, file *ast.File) (actions []string) {
	t.Helper()
	services := byName(path)
	if services == nil {
		t.Errorf("the folder of %s imports awscall, which this test does not know: want the services that it calls in byName", path)
		return nil
	}
	rows := map[string]bool{}
	for _, s := range iam.Statements() {
		for _, action := range s.Actions {
			rows[action] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok {
			return true
		}
		if m := verb.FindStringSubmatch(literal.Value); m != nil && !noAction.MatchString(m[1]) {
			at := max(0, slices.IndexFunc(services, func(service string) bool { return rows[service+":"+m[1]] }))
			actions = append(actions, services[at]+":"+m[1])
		}
		return true
	})
	return actions
}

// person is the folder that calls AWS for the keys of a person, who has rights of their own.
const person = "pkg/admin/profile"

// called returns the actions that the programs call in the name of a machine, with where.
func called(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range []string{"pkg", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || path == filepath.Join(root, person) {
				return err
			}
			files := sources(t, path)
			byName := slices.ContainsFunc(slices.Collect(maps.Values(files)), importsAwscall)
			for path, file := range files {
				for _, action := range callsOf(t, path, file, byName) {
					found[action] = path
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// sources are the files of a folder that are in the programs, by path.
func sources(t *testing.T, folder string) map[string]*ast.File {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*ast.File{}
	for _, path := range all {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if out[path], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func importsAwscall(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.HasSuffix(i.Path.Value, `/pkg/awscall"`) })
}

// paginator is what makes something that calls an action for each page, or until
// something is so.
var paginator = regexp.MustCompile(`^New(\w+)(Paginator|Waiter)$`)

// callsOf returns the actions of which a file names the method: whoever calls an SDK has
// to. awscall takes names, which may stand in any file of a folder where one imports it.
func callsOf(t *testing.T, path string, file *ast.File, byName bool) (actions []string) {
	t.Helper()
	if byName {
		actions = named(t, path, file)
	}
	var used []client
	for _, i := range file.Imports {
		name := strings.Trim(i.Path.Value, `"`)
		c, known := clients()[name]
		if known {
			used = append(used, c)
		} else if strings.Contains(name, "aws-sdk-go-v2/service/") && !strings.HasSuffix(name, "/types") {
			t.Errorf("%s imports %s, which this test does not know", path, name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		for _, c := range used {
			if m := paginator.FindStringSubmatch(s.Sel.Name); m != nil {
				actions = append(actions, c.action(m[1]))
			}
			_, named := c.names[s.Sel.Name] // some of these take no context
			if _, is := c.kind.MethodByName(s.Sel.Name); named || is && sends(c.kind, s.Sel.Name) {
				actions = append(actions, c.action(s.Sel.Name))
			}
		}
		return true
	})
	return actions
}

// sends reports whether a method calls the service: those that do take a context.
func sends(client reflect.Type, method string) bool {
	m, _ := client.MethodByName(method)
	return m.Type.NumIn() > 1 && m.Type.In(1).String() == "context.Context"
}

func (c client) action(method string) string {
	if name, ok := c.names[method]; ok {
		method = name
	}
	return c.prefix + ":" + method
}

// TestEachCallHasARow, and each row that is not silent a call.
func TestEachCallHasARow(t *testing.T) {
	calls, rows := called(t), map[string]bool{}
	for _, s := range iam.Statements() {
		for _, action := range s.Actions {
			rows[action] = true
			if _, is := calls[action]; is == s.Silent {
				t.Errorf("%s of %s: called is %v, and the row's Silent %v", action, s.ID, is, s.Silent)
			}
		}
	}
	for action, path := range calls {
		if !rows[action] {
			t.Errorf("%s calls %s, for which the table has no row", path, action)
		}
	}
	if len(calls) < 10 {
		t.Errorf("%d calls found, which can't be all: %v", len(calls), calls)
	}
}

// TestStatementsAreTight: an action that can be limited to some things is.
func TestStatementsAreTight(t *testing.T) {
	ids, placeholder := map[string]bool{}, regexp.MustCompile(`\$\{([a-z_]+)\}`)
	known := []string{
		"account", "agent_role_arn", "bucket", "cluster_id", "key_arn", "kms_key_arn", "partition", "region", "secret_prefix",
		"secret_region",
	}
	for _, s := range iam.Statements() {
		if ids[s.ID] || !regexp.MustCompile(`^[A-Za-z0-9]+$`).MatchString(s.ID) || s.For == "" {
			t.Errorf("%q: want an id of its own, of letters and digits, and what it is for", s.ID)
		}
		ids[s.ID] = true
		if !slices.IsSorted(s.Actions) {
			t.Errorf("%s: want sorted actions", s.ID)
		}
		for _, action := range s.Actions {
			_, verb, ok := strings.Cut(action, ":")
			if !ok || strings.Contains(action, "*") {
				t.Errorf("%s: %q is not one action", s.ID, action)
			}
			if slices.Contains(s.Resources, "*") && !strings.HasPrefix(verb, "Describe") {
				t.Errorf("%s: %s may touch anything", s.ID, action)
			}
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "arn:aws") {
			t.Errorf("%s names a partition: want ${partition}, which is another one in other parts of AWS", s.ID)
		}
		for _, m := range placeholder.FindAllSubmatch(text, -1) {
			if !slices.Contains(known, string(m[1])) {
				t.Errorf("%s: nobody fills in %s", s.ID, m[0])
			}
		}
	}
}

// TestWritten: what is in the repository was written from the table.
func TestWritten(t *testing.T) {
	all := map[string]iam.Policy{}
	for _, section := range iam.Sections() {
		all[section] = iam.Document(section)
		same(t, "terraform/aws/account/policies/"+section+".json", all[section])
	}
	same(t, "docs/aws-iam.json", all)
	files, err := filepath.Glob(filepath.Join(root, "terraform/aws/account/policies/*"))
	if err != nil || len(files) != len(all) {
		t.Errorf("%d policies in the module (%v), want %d", len(files), err, len(all))
	}
}

func same(t *testing.T, path string, v any) {
	t.Helper()
	want, err := iam.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, path))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not of this table (%v): run go run ./terraform/policies", path, err)
	}
}
