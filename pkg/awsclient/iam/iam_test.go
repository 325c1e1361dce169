package iam_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/minio/minio-go/v7"

	"github.com/nstance/nstance/pkg/awsclient/iam"
)

const root = "../../.."

// client is the SDK's client of a service.
type client struct {
	prefix string // the prefix of its actions
	kind   reflect.Type
	names  map[string]string // actions that are not named like the methods
}

// clients are those of all services that are called, by import path.
func clients() map[string]client {
	const sdk = "github.com/aws/aws-sdk-go-v2/service/"
	return map[string]client{
		sdk + "autoscaling":            {prefix: "autoscaling", kind: reflect.TypeFor[*autoscaling.Client]()},
		sdk + "ec2":                    {prefix: "ec2", kind: reflect.TypeFor[*ec2.Client]()},
		sdk + "elasticloadbalancingv2": {prefix: "elasticloadbalancing", kind: reflect.TypeFor[*elb.Client]()},
		sdk + "secretsmanager":         {prefix: "secretsmanager", kind: reflect.TypeFor[*secretsmanager.Client]()},
		sdk + "ssm":                    {prefix: "ssm", kind: reflect.TypeFor[*ssm.Client]()},
		"github.com/minio/minio-go/v7": {prefix: "s3", kind: reflect.TypeFor[*minio.Client](), names: map[string]string{
			"RemoveObject": "DeleteObject", "ListObjectsV2": "ListBucket", "GetBucketLifecycle": "GetLifecycleConfiguration",
		}},
	}
}

// person is the folder that calls AWS with an administrator's own keys and permissions.
const person = "pkg/admin/profile"

// called returns the actions that the programs call as a machine, with their places.
func called(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range []string{"pkg", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() || path == filepath.Join(root, person) {
				return err
			}
			for path, file := range sources(t, path) {
				for _, action := range callsOf(t, path, file) {
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

// sources returns the files of a folder that are in the programs, by path.
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

// paginator matches constructors that call an action for each page, or until a condition holds.
var paginator = regexp.MustCompile(`^New(\w+)(Paginator|Waiter)$`)

// callsOf returns the actions whose methods a file names, as every call of an SDK does.
func callsOf(t *testing.T, path string, file *ast.File) (actions []string) {
	t.Helper()
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
			_, named := c.names[s.Sel.Name] // some of these have no context
			if _, is := c.kind.MethodByName(s.Sel.Name); named || is && sends(c.kind, s.Sel.Name) {
				actions = append(actions, c.action(s.Sel.Name))
			}
		}
		return true
	})
	return actions
}

// sends reports whether a method calls the service: those that do have a context.
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

// TestEachCallHasARow, and each row, unless it is silent, a call.
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

// TestStatementsAreTight: an action that can be limited to resources is.
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
				t.Errorf("%s: nothing fills in %s", s.ID, m[0])
			}
		}
	}
}

// TestWritten: the policies in the repository were generated from the table.
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
