// Package etcd serves a store over etcd's gRPC API, as far as kube-apiserver uses it: ranges,
// transactions that write one key, watches, leases, compaction and status. Anything else is
// rejected.
package etcd

import (
	"crypto/tls"
	"errors"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// maxRequest bounds a request. kube-apiserver accepts objects of 3 MiB.
const maxRequest = 16 << 20

// New returns a server for the store; without a TLS configuration it is unauthenticated.
func New(s *store.Store, secure *tls.Config) *grpc.Server {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		// kube-apiserver pings its connections every 30 seconds and on activity; gRPC's
		// default would reject that (ENHANCE_YOUR_CALM).
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Minute, Timeout: 20 * time.Second}),
	}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	server := grpc.NewServer(options...)
	pb.RegisterKVServer(server, &kv{store: s})
	pb.RegisterWatchServer(server, &watches{store: s})
	pb.RegisterLeaseServer(server, &leases{store: s})
	pb.RegisterMaintenanceServer(server, &maintenance{store: s})
	return server
}

// header returns a response header with the newest revision, as of a cluster with one member.
func header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, Revision: revision, RaftTerm: 1}
}

// refused maps errors to those that etcd's clients know.
func refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, store.ErrFuture):
		return rpctypes.ErrGRPCFutureRev
	case errors.Is(err, store.ErrNoLease):
		return rpctypes.ErrGRPCLeaseNotFound
	case errors.Is(err, store.ErrNotJSON):
		return status.Error(codes.InvalidArgument, err.Error())
	default:
		return status.Error(codes.Internal, err.Error())
	}
}
