package pkg_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// libraries says who may import each module that is not ours; nil: everybody. An
// SDK has one room, so that it can be replaced, and faked, in one place.
func libraries() map[string][]string {
	kubernetes := []string{"pkg/api/v1beta1", "pkg/dev/kube"}
	for room := range rooms() {
		if strings.HasPrefix(room, "pkg/operator") {
			kubernetes = append(kubernetes, room)
		}
	}
	return map[string][]string{
		"google.golang.org/grpc":     nil,
		"google.golang.org/protobuf": nil,
		"golang.org/x/sys":           nil,

		// Kubernetes is the operator's, and of the development stack: neither server nor
		// agent knows it.
		"k8s.io/api":                     kubernetes,
		"k8s.io/apimachinery":            kubernetes,
		"k8s.io/apiextensions-apiserver": kubernetes,
		"k8s.io/client-go":               kubernetes,
		"sigs.k8s.io/cluster-api/api":    kubernetes,
		"sigs.k8s.io/controller-runtime": kubernetes,
		"k8s.io/kubectl":                 {"pkg/operator/drain"},
		"k8s.io/klog/v2":                 {"pkg/operator"}, // only to lead its lines into the log
		"github.com/go-logr/logr":        {"pkg/operator"},

		// The SDK for AWS is many modules: what all services need has one room, and each
		// service another.
		"github.com/aws/aws-sdk-go-v2": {
			"pkg/admin/profile", "pkg/awscall", "pkg/awsclient", "pkg/awsclient/awsclienttest", "pkg/provider/aws",
		},
		"github.com/aws/aws-sdk-go-v2/config":           {"pkg/admin/profile"}, // TestAdminAlone
		"github.com/aws/aws-sdk-go-v2/credentials":      {"pkg/admin/profile", "pkg/awsclient"},
		"github.com/aws/aws-sdk-go-v2/feature/ec2/imds": {"pkg/awsclient"},
		"github.com/aws/aws-sdk-go-v2/service/ec2":      {"pkg/provider/aws"},
		"github.com/aws/aws-sdk-go-v2/service/sso":      {"pkg/admin/profile"},
		"github.com/aws/aws-sdk-go-v2/service/sts":      {"pkg/admin/profile"},
		"github.com/aws/smithy-go":                      {"pkg/admin/profile", "pkg/awscall", "pkg/awsclient", "pkg/provider/aws"},

		"google.golang.org/genproto/googleapis/rpc": {"pkg/rpc"},
		"github.com/docker/docker":                  {"pkg/provider/docker"},
		"github.com/containerd/errdefs":             {"pkg/provider/docker", "integration/containers"},
		"github.com/minio/minio-go/v7":              {"pkg/object/s3", "integration/containers"},
		"github.com/johannesboyne/gofakes3":         {"pkg/dev/s3"},
		"github.com/ncruces/go-sqlite3":             {"pkg/server/ledger"},
		"golang.org/x/sync": {
			"pkg/provider/docker", "pkg/server/agents", "pkg/server/ledger", "pkg/server/leader", "pkg/server/delivery", "pkg/server/roster",
			"pkg/server/reconcile",
		},
		"golang.org/x/time":              {"pkg/server/reconcile"},
		"github.com/golang-jwt/jwt/v5":   {"pkg/nonce"},
		"github.com/spiffe/go-spiffe/v2": {"pkg/pki"},
		"github.com/tailscale/hujson":    {"pkg/config", "pkg/server/ledger"}, // texts that people edit too
		"sigs.k8s.io/yaml": {
			"images/release", "integration/cluster/machine", "pkg/admin/cli", "pkg/operator/settings", "pkg/provider/kubenode",
		},
		"github.com/shirou/gopsutil/v4": {"pkg/agent", "pkg/dev/stack"}, // what a machine and a process are like
		"github.com/spf13/cobra":        {"pkg/admin/cli", "cmd/nstance-server", "cmd/dev", "cmd/dev-aws", "cmd/dev-s3", "images"},

		"github.com/google/go-containerregistry": {
			"images/base", "images/registry", "images/release", "pkg/provider/docker/registry", "pkg/provider/docker/registry/registrytest",
			"integration/cluster/pack",
		},
		"github.com/docker/cli": {"pkg/provider/docker/registry"}, // reads the file of docker login

		// What the product speaks to an engine with is not what testcontainers does.
		"github.com/moby/moby/api":                                  {"integration/containers"},
		"github.com/moby/moby/client":                               {"integration/containers"},
		"github.com/testcontainers/testcontainers-go":               {"integration/containers"},
		"github.com/testcontainers/testcontainers-go/modules/k3s":   {"integration/containers"},
		"github.com/testcontainers/testcontainers-go/modules/minio": {"integration/containers"},

		"golang.org/x/crypto/x509roots/fallback": {"images/base"},
	}
}

// TestAdminAlone: what reads the files of a home, and signs people on, is linked into
// nstance-admin and into no other program.
func TestAdminAlone(t *testing.T) {
	for program, want := range map[string]bool{
		"nstance-admin": true, "nstance-server": false, "nstance-agent": false, "nstance-operator": false, "nstance-asg": false,
	} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/"+program)
		cmd.Dir = ".."
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		const sdk = "github.com/aws/aws-sdk-go-v2/"
		for _, lib := range []string{sdk + "config", sdk + "service/sso", sdk + "service/ssooidc", sdk + "service/sts"} {
			if linked := slices.Contains(strings.Fields(string(out)), lib); linked != want {
				t.Errorf("%s links %s: %t, want %t", program, lib, linked, want)
			}
		}
	}
}
