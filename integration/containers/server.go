//go:build integration

package containers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/docker"
)

// EncryptionKey is the key of each story's cluster.
const EncryptionKey = "thisisatest32bytekey123456789012"

// user is the user of the product's images.
const user = 65532

// Server describes how a server of a shard is started.
type Server struct {
	Image  string // of nstance-server
	Shard  string
	Store  *Store
	Bucket string // has the shard's config
	Socket string // of the engine; empty: the engine's own socket
	Flags  []string
}

// Server starts a server as a container, on the network of its story, where others reach it by its
// name. It does not wait for readiness: see Health. Its cache is in memory, and lost at each end of
// the process, as a cache may be at any time.
func (w *World) Server(name string, at At, s Server) *Container {
	w.Helper()
	socket := s.Socket
	if socket == "" {
		socket = w.socket()
	}
	env := map[string]string{"NSTANCE_ENCRYPTION_KEY": EncryptionKey}
	maps.Copy(env, s.Store.Env())
	flags := append([]string{
		"--shard", s.Shard, "--id", name, "--storage-bucket", s.Bucket, "--cache-dir", "/state", "--advertise-host", name,
	}, s.Flags...)
	return w.Run(name, s.Image, at,
		testcontainers.WithEnv(env), testcontainers.WithCmd(flags...),
		testcontainers.WithLabels(docker.ServerLabels(provider.Scope{ClusterID: w.Cluster, Shard: s.Shard})),
		testcontainers.WithTmpfs(map[string]string{"/state": fmt.Sprintf("uid=%d,gid=%d,mode=0700", user, user)}),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) {
			host.Binds = append(host.Binds, socket+":/var/run/docker.sock")
			host.GroupAdd = append(host.GroupAdd, strconv.Itoa(groupOf(w, socket)))
		}))
}

// Health returns a server's answer at its health address. Any status but 200 is an error.
func Health(ctx context.Context, address netip.Addr) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpointURL(address, 8990), http.NoBody)
	if err != nil {
		return "", err
	}
	// No keep-alive: a server closes the connection after a request.
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return strings.TrimSpace(string(text)), err
}
