package redlatch.interop;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A process of the crowd (cargo bench --bench crowd) whose locks are Redisson's. The first argument is "plain" or "fair"; the others,
 * and what it reads and writes, are those of benches/crowd/worker.rs.
 */
public final class CrowdWorker {
    /** After so many turns of each of two threads all paths are compiled. In a round a process may have fewer turns. */
    private static final int WARM_TURNS = 300;

    private static final long NANOS_A_MICRO = 1_000;
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    /** When it asked, when it had the lock, and when it began to give it up. */
    private record Turn(int thread, long asked, long held, long left) {
    }

    private final RedissonClient client;
    private final boolean fair;
    private final Map<String, String> order;

    private CrowdWorker(RedissonClient client, boolean fair, Map<String, String> order) {
        this.client = client;
        this.fair = fair;
        this.order = order;
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
            // Not all of Redisson's threads are daemons.
            System.exit(0);
        } catch (Exception failure) {
            failure.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        Map<String, String> order = new HashMap<>();
        for (String argument : arguments) {
            String[] option = argument.split("=", 2);
            order.put(option[0], option[option.length - 1]);
        }
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(order.get("lease-ms")));
        config.useSingleServer().setAddress(order.get("url"));
        new CrowdWorker(Redisson.create(config), arguments[0].equals("fair"), order).work();
    }

    private void work() throws Exception {
        String name = order.get("name");
        contend(name + ":" + ProcessHandle.current().pid(), 2, Long.MAX_VALUE, WARM_TURNS);
        // Redisson's owner fields begin with the id of the client.
        OUT.println("ready " + client.getId());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String[] span = in.readLine().split(" ");
        endWithInput(in);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long before = system.getProcessCpuTime();
        LockSupport.parkNanos(Long.parseLong(span[0]) - System.nanoTime());
        List<Turn> turns = contend(name, Integer.parseInt(order.get("threads")), Long.parseLong(span[1]), Integer.MAX_VALUE);
        long micros = (system.getProcessCpuTime() - before) / NANOS_A_MICRO;
        OUT.println("done " + turns.size() + " " + micros + " 0 ");
        OUT.write(bytesOf(turns));
        OUT.flush();
    }

    private static void endWithInput(BufferedReader in) {
        Thread watcher = new Thread(() -> {
            try {
                while (in.readLine() != null) {
                }
            } catch (IOException gone) {
                // The same as its end.
            }
            System.exit(1);
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private List<Turn> contend(String name, int threads, long end, int most) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Future<List<Turn>>> parts = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            int number = thread;
            parts.add(pool.submit(() -> takeTurns(name, number, end, most)));
        }
        List<Turn> turns = new ArrayList<>();
        for (Future<List<Turn>> part : parts) {
            turns.addAll(part.get());
        }
        pool.shutdown();
        return turns;
    }

    private List<Turn> takeTurns(String name, int thread, long end, int most) {
        RLock lock = fair ? client.getFairLock(name) : client.getLock(name);
        List<Turn> turns = new ArrayList<>();
        for (long asked = System.nanoTime(); asked < end && turns.size() < most; asked = System.nanoTime()) {
            lock.lock();
            long held = System.nanoTime();
            sleepUntil(held + nanos("work-us"));
            long left = spin(nanos("spin-us"));
            lock.unlock();
            turns.add(new Turn(thread, asked, held, left));
            sleepUntil(System.nanoTime() + nanos("pause-us"));
        }
        return turns;
    }

    private long nanos(String option) {
        return Long.parseLong(order.get(option)) * NANOS_A_MICRO;
    }

    private static void sleepUntil(long end) {
        for (long left = end - System.nanoTime(); left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    /** When it was done. */
    private static long spin(long nanos) {
        long from = System.nanoTime();
        long now = from;
        while (now - from < nanos) {
            Thread.onSpinWait();
            now = System.nanoTime();
        }
        return now;
    }

    private static byte[] bytesOf(List<Turn> turns) {
        ByteBuffer bytes = ByteBuffer.allocate(turns.size() * 4 * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        for (Turn turn : turns) {
            bytes.putLong(turn.thread).putLong(turn.asked).putLong(turn.held).putLong(turn.left);
        }
        return bytes.array();
    }
}
