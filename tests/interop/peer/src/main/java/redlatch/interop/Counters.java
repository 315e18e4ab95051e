package redlatch.interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Redisson's RSemaphore, RPermitExpirableSemaphore and RCountDownLatch. A permit is the program's, not a thread's. */
final class Counters {
    private static final long WORK_MILLIS = 1;

    private final RedissonClient client;

    /** The ids of the permits that are out, by the name of their semaphore. */
    private final Map<String, ConcurrentLinkedDeque<String>> ids = new ConcurrentHashMap<>();

    Counters(RedissonClient client) {
        this.client = client;
    }

    /** Words from the fourth on are the arguments, and the first of them is the name. */
    Object run(String kind, String verb, String[] words) throws InterruptedException {
        String name = words[3];
        long first = words.length > 4 ? Long.parseLong(words[4]) : 0;
        long second = words.length > 5 ? Long.parseLong(words[5]) : 0;
        if (verb.equals("turns")) {
            return turns(kind, name, (int) first, second);
        }
        return switch (kind) {
            case "semaphore" -> ofSemaphore(client.getSemaphore(name), verb, (int) first, second);
            case "leased" -> ofLeased(client.getPermitExpirableSemaphore(name), verb, (int) first, second);
            case "latch" -> ofLatch(client.getCountDownLatch(name), verb, first);
            default -> throw new IllegalArgumentException(kind);
        };
    }

    private static Object ofSemaphore(RSemaphore semaphore, String verb, int permits, long waitMillis) throws InterruptedException {
        switch (verb) {
            case "trySet" -> {
                return semaphore.trySetPermits(permits);
            }
            case "add" -> semaphore.addPermits(permits);
            case "drain" -> {
                return semaphore.drainPermits();
            }
            case "available" -> {
                return semaphore.availablePermits();
            }
            case "acquire" -> semaphore.acquire(permits);
            case "tryAcquire" -> {
                return semaphore.tryAcquire(permits, Duration.ofMillis(waitMillis));
            }
            case "release" -> semaphore.release(permits);
            default -> throw new IllegalArgumentException(verb);
        }
        return "";
    }

    private Object ofLeased(RPermitExpirableSemaphore semaphore, String verb, int permits, long millis) throws InterruptedException {
        switch (verb) {
            case "trySet" -> {
                return semaphore.trySetPermits(permits);
            }
            case "set" -> semaphore.setPermits(permits);
            case "add" -> semaphore.addPermits(permits);
            case "available" -> {
                return semaphore.availablePermits();
            }
            case "out" -> {
                return semaphore.acquiredPermits();
            }
            case "total" -> {
                return semaphore.getPermits();
            }
            case "acquire" -> keep(semaphore, semaphore.acquire(permits));
            case "acquireFor" -> keep(semaphore, semaphore.acquire(permits, millis, TimeUnit.MILLISECONDS));
            case "tryAcquire" -> {
                // A lease of -1 never ends.
                return keep(semaphore, semaphore.tryAcquire(permits, millis, -1, TimeUnit.MILLISECONDS));
            }
            case "release" -> semaphore.release(taken(semaphore, permits));
            default -> throw new IllegalArgumentException(verb);
        }
        return "";
    }

    private static Object ofLatch(RCountDownLatch latch, String verb, long number) throws InterruptedException {
        switch (verb) {
            case "trySet" -> {
                return latch.trySetCount(number);
            }
            case "countDown" -> latch.countDown();
            case "count" -> {
                return latch.getCount();
            }
            case "await" -> {
                return latch.await(number, TimeUnit.MILLISECONDS);
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return "";
    }

    /** Whether there are any. */
    private boolean keep(RPermitExpirableSemaphore semaphore, List<String> acquired) {
        if (acquired == null || acquired.isEmpty()) {
            return false;
        }
        ids.computeIfAbsent(semaphore.getName(), name -> new ConcurrentLinkedDeque<>()).addAll(acquired);
        return true;
    }

    private List<String> taken(RPermitExpirableSemaphore semaphore, int permits) {
        List<String> taken = new ArrayList<>();
        for (int left = permits; left > 0; left--) {
            taken.add(ids.get(semaphore.getName()).remove());
        }
        return taken;
    }

    /**
     * Acquires and releases permits for some time, and adds what it has to a gauge meanwhile: how often, and what the gauge showed at
     * most.
     */
    private String turns(String kind, String name, int permits, long millis) throws InterruptedException {
        RAtomicLong gauge = client.getAtomicLong("gauge");
        String[] words = {"", "", "", name, String.valueOf(permits)};
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        long most = 0;
        long turns = 0;
        for (; System.nanoTime() < end; turns++) {
            run(kind, "acquire", words);
            most = Math.max(most, gauge.addAndGet(permits));
            Thread.sleep(WORK_MILLIS);
            gauge.addAndGet(-permits);
            run(kind, "release", words);
        }
        return turns + " " + most;
    }
}
