package drain

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/operator/workload"
)

// pages is a reader that lists Nodes one per page.
type pages struct {
	client.Reader

	nodes []corev1.Node
	fail  string // the continue token whose page fails
}

var errPage = errors.New("page failed")

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

// TestNodeOfInstance: an instance's Node is the one with its provider ID, or with its name and
// no provider ID yet, anywhere in the list. If several match, if the one that does has another
// provider ID, or if none does, but one has its address or a name that its Node had, the Node is
// ambiguous, and not missing.
func TestNodeOfInstance(t *testing.T) {
	node := func(name, id string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: id}}
	}
	const id, own, given = "aws:///us-east-1a/i-1", "knd01h455vb4pex5vsknk084sn02q", "ip-10-0-0-5.ec2.internal"
	at := func(ip string, n corev1.Node) corev1.Node {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: own}}
		return n
	}
	others := []corev1.Node{node("a", "aws:///us-east-1a/i-2"), node("b", ""), node("control-plane", "aws:///us-east-1a/i-3")}
	with := func(more ...corev1.Node) []corev1.Node { return append(slices.Clone(others), more...) }
	for name, test := range map[string]struct {
		nodes          []corev1.Node
		hostname, fail string
		noID           bool   // the provider ID is unknown
		seen           string // a name that its Node had

		want      string
		ambiguous []string // the candidates
		err       error
	}{
		"instance ID":                        {nodes: with(node(own, "")), want: own},
		"hostname":                           {nodes: with(node(given, "")), hostname: given, want: given},
		"hostname in capitals":               {nodes: with(node(given, "")), hostname: strings.ToUpper(given), want: given},
		"provider ID":                        {nodes: with(node(own, id)), want: own},
		"provider ID, another name":          {nodes: with(node(given, id)), want: given},
		"unknown provider ID":                {nodes: with(node(own, "")), noID: true, want: own},
		"unknown provider ID, Node with one": {nodes: with(node(own, id)), noID: true, ambiguous: []string{own}},
		"another provider ID":                {nodes: with(node(own, "aws:///x/i-9")), ambiguous: []string{own}},
		"another provider ID, and one with its own": {nodes: with(node(own, "aws:///x/i-9"), node("n", id)),
			ambiguous: []string{own, "n"}},
		"two with its provider ID":               {nodes: with(node(own, id), node("z", id)), ambiguous: []string{own, "z"}},
		"two with its provider ID, other names":  {nodes: with(node("y", id), node("z", id)), ambiguous: []string{"y", "z"}},
		"provider ID and name on two Nodes":      {nodes: with(node("z", id), node(own, "")), ambiguous: []string{own, "z"}},
		"ID and hostname on two Nodes":           {nodes: with(node(own, ""), node(given, "")), hostname: given, ambiguous: []string{given, own}},
		"k3s' own provider ID":                   {nodes: with(node(own, "k3s://"+own)), ambiguous: []string{own}},
		"renamed":                                {nodes: with(node("ip-10-0-0-5", id)), want: "ip-10-0-0-5"},
		"its address":                            {nodes: with(at("10.0.0.5", node("other", ""))), ambiguous: []string{"other"}},
		"its address, in IPv6":                   {nodes: with(at("::ffff:10.0.0.5", node("other", ""))), ambiguous: []string{"other"}},
		"its address, and k3s' provider ID":      {nodes: with(at("10.0.0.5", node("other", "k3s://other"))), ambiguous: []string{"other"}},
		"its address, and another instance's ID": {nodes: with(at("10.0.0.5", node("other", "aws:///us-east-1a/i-4")))},
		"its address, on the Node of its ID too": {
			nodes: with(at("10.0.0.5", node("other", "aws:///x/i-9")), at("10.0.0.5", node("n", id))), want: "n",
		},
		"its address on two Nodes":    {nodes: with(at("10.0.0.5", node("x", "")), at("10.0.0.5", node("y", ""))), ambiguous: []string{"x", "y"}},
		"another address":             {nodes: with(at("10.0.0.6", node("other", "")))},
		"loopback addresses":          {nodes: with(at("127.0.0.1", node("other", "")))},
		"the name it had":             {nodes: with(node("had", "")), seen: "had", ambiguous: []string{"had"}},
		"the name it had, another ID": {nodes: with(node("had", "aws:///x/i-9")), seen: "had", ambiguous: []string{"had"}},
		"the name it had, another instance's": {
			nodes: with(node("had", "aws:///us-east-1a/i-4")), seen: "had",
		},
		"the name it had, and its ID elsewhere": {nodes: with(node("had", "aws:///x/i-9"), node("n", id)), seen: "had", want: "n"},
		"none":                                  {nodes: others, hostname: given},
		"none, unknown provider ID":             {nodes: others, noID: true},
		"no Nodes":                              {hostname: given},
		"failed page":                           {nodes: others, fail: "1", err: errPage},
		"failed page after a match":             {nodes: append([]corev1.Node{node(own, id)}, others...), fail: "2", err: errPage},
	} {
		t.Run(name, func(t *testing.T) {
			w := workload.Identify(id, own, test.hostname, []string{"10.0.0.5", "127.0.0.1", "unknown"})
			if w.Saw(test.seen); test.noID {
				w.ProviderID = ""
			}
			w.Other = func(id string) bool { return id == "aws:///us-east-1a/i-4" }
			found, err := nodeWith(t.Context(), pages{nodes: test.nodes, fail: test.fail}, w)
			got := ""
			if found != nil {
				got = found.Name
			}
			var asAmbiguous *ambiguousError
			var in []string
			if errors.As(err, &asAmbiguous) {
				for _, n := range asAmbiguous.Nodes {
					in = append(in, n.Name)
				}
			}
			if got != test.want || !slices.Equal(in, test.ambiguous) || asAmbiguous == nil && !errors.Is(err, test.err) {
				t.Errorf("found %q, %v; want %q, %v, ambiguous %v", got, err, test.want, test.err, test.ambiguous)
			}
			s := decide(nodeView{instance: instance(nil), node: found, nodeErr: err, now: noon})
			if (s.act == acknowledge) != (got == "" && err == nil) || (s.act == ambiguous) != (asAmbiguous != nil) {
				t.Errorf("decided to %s: %s", s.act, s.why)
			}
		})
	}
}

// TestDeletedNode: a Node that was observed counts as missing only after a while, since a
// recreated Node is missing for a moment. If it returns, the wait restarts.
func TestDeletedNode(t *testing.T) {
	d := &drain{since: noon}
	for _, step := range []struct {
		at       time.Duration
		node     bool
		justWent bool
	}{
		{0, false, false}, {time.Second, true, false}, {2 * time.Second, false, true}, {11 * time.Second, false, true},
		{12 * time.Second, true, false}, {13 * time.Second, false, true}, {22 * time.Second, false, true}, {23 * time.Second, false, false},
	} {
		just := d.justWent(map[bool]string{true: "n"}[step.node], false, noon.Add(step.at))
		if just != step.justWent {
			t.Errorf("after %s, node %t: justWent is %t", step.at, step.node, just)
		}
		v := nodeView{instance: instance(nil), justWent: just, now: noon}
		if want := map[bool]act{true: again, false: acknowledge}[just]; !step.node && decide(v).act != want {
			t.Errorf("after %s: decided to %s", step.at, decide(v).act)
		}
	}
	restarted := &drain{since: noon}
	if !restarted.justWent("", true, noon) || restarted.justWent("", true, noon.Add(nodeGrace)) {
		t.Error("a Node that was observed before a restart does not count as missing after a while")
	}
	if v := (nodeView{instance: instance(nil), justWent: true, now: noon.Add(time.Hour)}); decide(v).act != tooLate {
		t.Errorf("after the deadline: decided to %s", decide(v).act)
	}
}
