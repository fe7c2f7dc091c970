import java.net.InetSocketAddress;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.server.LocalDynamoDBRequestHandler;
import software.amazon.dynamodb.services.local.server.LocalDynamoDBServerHandler;

/**
 * DynamoDB Local in memory, on a free port of 127.0.0.1: its own runner listens on every interface.
 * Prints "port N" once it answers.
 */
public final class DynamoDbLocal {
    public static void main(String[] arguments) throws Exception {
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        LocalDynamoDBRequestHandler requests = new LocalDynamoDBRequestHandler(0, true, null, true, false);
        server.setHandler(new LocalDynamoDBServerHandler(requests, "*"));
        server.start();
        System.out.println("port " + ((ServerConnector) server.getConnectors()[0]).getLocalPort());
        server.join();
    }
}
