package drain

import (
	"context"
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pages is an API server with Nodes that it lists one by one.
type pages struct {
	client.Reader

	nodes []corev1.Node
	fail  string // the page that fails
}

func (p pages) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	for i := range p.nodes {
		if p.nodes[i].Name == key.Name {
			p.nodes[i].DeepCopyInto(o.(*corev1.Node))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
}

var errPage = errors.New("a page failed")

func (p pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	at, _ := strconv.Atoi(o.Continue)
	if p.fail != "" && o.Continue == p.fail {
		return errPage
	}
	if at < len(p.nodes) {
		list.(*corev1.NodeList).Items = p.nodes[at : at+1]
		if at+1 < len(p.nodes) {
			list.(*corev1.NodeList).Continue = strconv.Itoa(at + 1)
		}
	}
	return nil
}

// TestANodeTheCacheLacks: before a drain is acknowledged since there is no Node, it is
// looked for past the cache, whatever it is called and whichever page it is on.
func TestANodeTheCacheLacks(t *testing.T) {
	node := func(name, id string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
	}
	const id = "aws:///us-east-1a/i-1"
	others := []corev1.Node{node("a", "aws:///us-east-1a/i-2"), node("b", "")}
	for name, test := range map[string]struct {
		nodes          []corev1.Node
		hostname, fail string
		want           string
		err            error
	}{
		"by its hostname":          {nodes: append(others, node("web-1", "")), hostname: "web-1", want: "web-1"},
		"called otherwise":         {nodes: append(others, node("ip-10-0-0-5.ec2", id)), hostname: "web-1", want: "ip-10-0-0-5.ec2"},
		"of an unknown hostname":   {nodes: append(others, node("ip-10-0-0-5.ec2", id)), want: "ip-10-0-0-5.ec2"},
		"another has its hostname": {nodes: append(others, node("web-1", "aws:///x/i-9"), node("n", id)), hostname: "web-1", want: "n"},
		"there is none":            {nodes: others, hostname: "web-1"},
		"there are no Nodes":       {hostname: "web-1"},
		"a page fails":             {nodes: others, hostname: "web-1", fail: "1", err: errPage},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := nodeWith(t.Context(), pages{nodes: test.nodes, fail: test.fail}, id, test.hostname)
			got := ""
			if found != nil {
				got = found.Name
			}
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("found %q, %v; want %q, %v", got, err, test.want, test.err)
			}
		})
	}
}
